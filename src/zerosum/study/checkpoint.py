"""Checkpoint folder: the coordinator's journal and the site identities, so that a killed study can be resumed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.coordinator.journal import Journal
from zerosum.errors import BadInput, Refused
from zerosum.kernel.plan import Plan
from zerosum.secagg.keys import Identity
from zerosum.site.identity import keep_identity
from zerosum.site.site import Site
from zerosum.study.planning import pin


class Checkpoint:
    """Folder with the state of one study in one process, and with its result after the end.

    The site identities are stored here because sites in one process have no state folder. The journal holds no private
    data.

    Parameters
    ----------
    folder : path
        Created by the first write.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = Path(folder)

    def identity(self, site: str, units: Units) -> Identity:
        """Signing identity of one site, created on the first call. The plan pins it.

        Also stores a keyed digest of the data and compares it on later calls. A study resumed with different data would
        combine releases of two data sets, and the result of a finished study would not describe the data given.

        Parameters
        ----------
        site : str
            Name of the site.
        units : Units
            Its data.

        Raises
        ------
        Refused
            If the data differ from those of the first call.
        BadInput
            If the folder cannot be read or written.
        """
        # Site names may contain characters that are invalid in file names. "surrogatepass" admits names with lone
        # surrogates.
        name = hashlib.sha256(site.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        identity = keep_identity(self._folder / "identities" / f"{name}.key")
        # The digest is keyed with the private key. Without it a reader of the folder could test guesses of the data.
        mark = hashlib.blake2b(key=identity.private)
        parts = (units.rows.data, units.rows.indices, units.rows.indptr) if units.is_sparse else (to_numpy(units.rows),)
        for part in parts:
            mark.update(np.ascontiguousarray(part).tobytes())
        # The same rows with other owners are other units.
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
        """Raise `Refused` if the folder holds another study.

        Parameters
        ----------
        plan : Plan
            The plan to be run.
        approved : bool
            True for an approved plan, whose proposal digest must be equal. False for a new plan of the same study file:
            only the public digest must be equal, since each plan has a random suffix in its name.
        """
        journal = Journal.open(self._folder)
        if journal is not None:
            with journal:
                self._check_same(journal.plan, plan, approved)

    def journal(self, plan: Plan, sites: Sequence[Site], *, approved: bool = False) -> Journal:
        """Open the journal in this folder, or create one for `plan` with the identities of `sites`. See `check` for
        `approved`."""
        # Opening takes the journal's lock, so that two processes cannot resume one study.
        journal = Journal.open(self._folder)
        if journal is None:
            return Journal.create(self._folder, pin(plan, sites))
        try:
            self._check_same(journal.plan, plan, approved)
            if not journal.finished:
                pin(journal.plan, sites)  # raises if a site has another identity than the plan pins
        except BaseException:
            journal.close()
            raise
        return journal

    def _check_same(self, stored: Plan, requested: Plan, approved: bool) -> None:
        """Raise `Refused` unless both plans have the same digest: the proposal digest if approved, else the public
        digest."""
        same = (
            stored.proposal_digest == requested.proposal_digest
            if approved
            else stored.public_digest == requested.public_digest
        )
        if not same:
            which = "another plan" if approved else "another study: its question, sites or terms have changed"
            raise Refused(f"the checkpoint {self._folder} is of {which}; choose another folder")
