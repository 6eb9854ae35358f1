"""Launcher of a client's job processes for which a relay that was killed is a lost site, and not a failed job."""

from __future__ import annotations

from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle

_SIGNALLED = 128  # exit codes above say that a signal ended the process


class _Handle(ProcessHandle):  # type: ignore[misc]  # FLARE ships no types
    """A job process whose death by a signal is reported as unknown."""

    def poll(self) -> Any:
        """The exit code in FLARE's terms; None while the process runs."""
        # With FLARE's own code for a killed process the job would fail at all sites. UNKNOWN leaves the loss to the
        # engine: the other sites go on if the plan allows dropouts.
        code = self.adapter.poll()
        if code is not None and (code < 0 or code > _SIGNALLED):
            return JobReturnCode.UNKNOWN
        return super().poll()


class Launcher(ClientProcessJobLauncher):  # type: ignore[misc]
    """FLARE's launcher of client processes with `_Handle` for the process. `jobs.harden` puts it into a site's kit."""

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> Any:
        """Start a job process as FLARE does, and return it behind `_Handle`."""
        return _Handle(process_adapter=super().launch_job(job_meta, fl_ctx).adapter)
