"""A client's launcher for which a relay that was killed is a lost site, and not a failed job."""

from __future__ import annotations

from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle

_SIGNALLED = 128  # exit codes above say that a signal ended the process


class _Handle(ProcessHandle):  # type: ignore[misc]  # FLARE ships no types
    def poll(self) -> Any:
        code = self.adapter.poll()
        if code is not None and (code < 0 or code > _SIGNALLED):
            return JobReturnCode.UNKNOWN
        return super().poll()


class Launcher(ClientProcessJobLauncher):  # type: ignore[misc]
    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> Any:
        return _Handle(process_adapter=super().launch_job(job_meta, fl_ctx).adapter)
