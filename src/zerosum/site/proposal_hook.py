"""The operator's command for a plan that waits for the steward, such as one that sends an e-mail.

The command gets a text on its standard input and the plan in its environment. No shell is involved: names of studies
are chosen by coordinators. It runs beside the service, which does not wait for it; its failure has no effect on the
study and is logged.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Sequence

from zerosum.kernel.names import visible
from zerosum.kernel.plan import Plan

SECONDS = 60.0  # time-out of the command; chosen by hand
_log = logging.getLogger("zerosum")


class ProposalHook:
    """Runs a command for every new plan that waits, one after the other.

    Parameters
    ----------
    site : str
        Name of the site.
    command : sequence of str
        The program and its arguments; empty: nothing is run.
    """

    def __init__(self, site: str, command: Sequence[str]) -> None:
        self._site, self._command, self._mutex = site, tuple(command), threading.Lock()

    def __call__(self, plan: Plan) -> threading.Thread | None:
        """Start the command in the background; return its thread."""
        if not self._command:
            return None
        # A daemon: a command that hangs must not delay the end of the site.
        thread = threading.Thread(target=self._run, args=(plan,), name="zerosum-on-proposal", daemon=True)
        thread.start()
        return thread

    def _run(self, plan: Plan) -> None:
        """Run the command to its end."""
        # A coordinator chooses these names: an escape sequence in one of them must not reach a terminal or a mail.
        study, digest = visible(plan.study), plan.digest()
        text = (
            f"The plan of the study {study} waits at the site {visible(self._site)} for a decision.\n\n"
            f"algorithm  {visible(plan.algorithm)}\nepsilon    {plan.epsilon:g} at delta {plan.delta:g}\n"
            f"sites      {', '.join(visible(site.name) for site in plan.sites)}\n"
            f"columns    {', '.join(visible(name) for name in plan.question.sources[:50])}\n\n"
            f"zerosum site dry-run {digest}\nzerosum site approve {digest}\nzerosum site refuse {digest} --reason ...\n"
        )
        more = {"ZEROSUM_SITE": visible(self._site), "ZEROSUM_STUDY": study, "ZEROSUM_PLAN": digest}
        try:
            # One at a time: a coordinator that proposes many plans must not start many programs.
            with self._mutex:
                done = subprocess.run(  # noqa: S603  # the operator's own command, without a shell
                    self._command,
                    input=text,
                    # The command may write in any encoding; the system's may not have the names of a study.
                    encoding="utf-8",
                    errors="replace",
                    capture_output=True,
                    timeout=SECONDS,
                    check=False,
                    env={**os.environ, **more},
                )
            if done.returncode:
                _log.warning("on_proposal ended with %s: %s", done.returncode, visible(done.stderr[-200:]))
        except (OSError, subprocess.SubprocessError) as error:
            # The type alone: the message of a time-out contains the whole command, which may have a password in it.
            _log.warning("on_proposal failed: %s", type(error).__name__)
