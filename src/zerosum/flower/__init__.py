"""Zerosum over Flower, which carries bytes to sites' sockets and nothing else. Needs the extra `flower`.

Processes of one study, and the way of a frame between them:

    Flower's ServerApp process `server_app.app` runs the study; its engine `grid.FlowerGrid` sends each frame
        |  Flower's Grid, then its SuperLink
    `zerosum flower node`      `node.Node` at every site: pulls messages by TLS under a key of its own, and runs no code
        |  Unix socket of the site
    `zerosum site run`         the site's own process with data, policy, ledger and identity

Flower gives every node the code bundle (FAB) of a run, which the uploader of the run writes. A node of Zerosum does not
fetch it: it hands the message to `client_app.app`, which is installed at the site. A SuperNode of Flower works too, and
runs the code of every user who may start a run: docs/flower.md states where that is tolerable.

`client_app` and `server_app` are imported by Flower, by the names in the bundle that `bundle` writes. `bundle` and
`keys` need no Flower.
"""
