"""Zerosum over NVIDIA FLARE, which carries bytes to sites' sockets and nothing else. Needs the extra `nvflare`.

Processes of one study, and the way of a frame between them:

    server's job process       `controller.Coordinator` runs the study; its engine `cells.Cells` sends each frame
        |  FLARE's job cells over gRPC and mutual TLS: digest of the plan (32 bytes), then the frame
    client's job process       `relay.Relay` at every site; holds no key and reads no frame
        |  Unix socket at $ZEROSUM_SITE_SOCKET
    `zerosum site run`         the site's own process with data, policy, ledger and identity

FLARE's TLS keys are for the transport only. What identifies a site in a study is its own identity, which the roster
names and whose key no FLARE process holds.

`controller`, `relay` and `launcher` are imported by FLARE, by the names that a job or a kit gives it, and by no module
of Zerosum. `jobs`, `provision` and `certificates` write the files of FLARE for the command line; `jobs` needs no FLARE.
"""
