"""A folder in which a study survives its process: the coordinator's journal, and the identities of its sites."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from zerosum.coordinator.journal import Journal
from zerosum.errors import BadInput, Refused
from zerosum.kernel.plan import Plan
from zerosum.kernel.statistic import to_numpy
from zerosum.kernel.units import Units
from zerosum.secagg.keys import Identity
from zerosum.site.identity import keep_identity
from zerosum.site.site import Site
from zerosum.study.planning import pin


class Checkpoint:
    """Where one study is kept, from its first round until it is over, and its result after that.

    Sites' identities lie here because in one process they have no other home. The journal holds nothing private.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = Path(folder)

    def identity(self, site: str, units: Units) -> Identity:
        """The identity of a site of this study, which its plan pins. Its data must be the same each time: a study that
        goes on with others would mix them, and a finished one says nothing about them."""
        name = hashlib.sha256(site.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        identity = keep_identity(self._folder / "identities" / f"{name}.key")
        mark = hashlib.blake2b(key=identity.private)  # keyed, so that the folder does not tell what the data are
        parts = (units.rows.data, units.rows.indices, units.rows.indptr) if units.is_sparse else (to_numpy(units.rows),)
        for part in parts:
            mark.update(np.ascontiguousarray(part).tobytes())
        mark.update(b"" if units.offsets is None else units.offsets.tobytes())
        path = self._folder / "identities" / f"{name}.data"
        try:
            if not path.exists():
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                    file.write(mark.digest())
            elif path.read_bytes() != mark.digest():
                raise Refused(
                    f"the data of site {site!r} are not those of the study in the checkpoint {self._folder}; choose "
                    "another folder"
                )
        except OSError as error:
            raise BadInput(f"the checkpoint {self._folder} cannot be used: {error.strerror or error}") from error
        return identity

    def check(self, plan: Plan, *, approved: bool = False) -> None:
        """Refuse a folder that holds another study: asked otherwise, or, where it was approved, another plan."""
        journal = Journal.open(self._folder)
        if journal is not None:
            with journal:
                self._same(journal.plan, plan, approved)

    def journal(self, plan: Plan, sites: Sequence[Site], *, approved: bool = False) -> Journal:
        """The journal of the study in this folder; of this one, with these sites, if there is none."""
        journal = Journal.open(self._folder)
        if journal is None:
            return Journal.create(self._folder, pin(plan, sites))
        try:
            self._same(journal.plan, plan, approved)
            if not journal.finished:
                pin(journal.plan, sites)  # refuses sites with other identities
        except BaseException:
            journal.close()
            raise
        return journal

    def _same(self, kept: Plan, asked: Plan, approved: bool) -> None:
        same = kept.proposal_digest == asked.proposal_digest if approved else kept.public_digest == asked.public_digest
        if not same:
            which = "another plan" if approved else "another study: what is asked, of whom or on what terms has changed"
            raise Refused(f"the checkpoint {self._folder} is of {which}; choose another folder")
