"""The faults: what could be wrong somewhere, and must not go unseen. `docs/audit.md` says what catches each."""

from __future__ import annotations

from zerosum.audit.mistakes.fault import Edit, Fault

_NOISE = [
    Fault(
        "repeated-draws",
        "each draw of the sampler serves two neighbouring numbers",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "np.repeat(discrete_gaussian.draw((size + 1) // 2, std, self.words), 2)[:size]",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "self.words(len(part))",
                "np.repeat(self.words((len(part) + 1) // 2), 2)[: len(part)]",
            ),
        ),
        audible=True,
    ),
    Fault(
        "repeated-halves",
        "the second half of a release has the noise of the first",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "np.tile(discrete_gaussian.draw((size + 1) // 2, std, self.words), 2)[:size]",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "self.words(len(part))",
                "np.tile(self.words((len(part) + 1) // 2), 2)[: len(part)]",
            ),
        ),
        audible=True,
    ),
    Fault(
        "one-key",
        "one key for the noise of all sites, rounds and studies",
        (Edit("noise.sampler:Sampler.system", "os.urandom(32)", "bytes(32)"),),
        audible=True,
    ),
    Fault(
        "one-key-a-site",
        "a site's noise has the same key in every round and study",
        (Edit("site.site:Site._share", "Sampler.system()", "Sampler.seeded(self.name.encode())"),),
        audible=True,
    ),
    Fault(
        "one-key-a-round",
        "all sites draw from one key in a round",
        (Edit("site.site:Site._share", "Sampler.system()", "Sampler.seeded(context)"),),
        audible=True,
    ),
    Fault(
        "correlated-rounds",
        "noise has correlation 0.3 from round to round, study to study and site to site",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "np.rint(sum(share**0.5 * discrete_gaussian.draw(size, std, source.words) for share, source in"
                " ((0.3, Sampler.seeded(b'')), (0.7, self)))).astype(np.int64)",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "return np.multiply(out, std, out=out)",
                "return std * (0.7**0.5 * out + 0.3**0.5 * ndtri(((Sampler.seeded(b'').words(size)"
                " >> np.uint64(12)) + 0.5) * 2.0**-52))",
            ),
        ),
        audible=True,
    ),
    Fault(
        "less-noise",
        "noise 3 % too small",
        (Edit("site.noise:NoiseShare.__init__", "= law, site, size", "= law.scaled(0.97), site, size"),),
        audible=True,
    ),
    Fault(
        "silent-places",
        "every 100th number of a release has no noise",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "discrete_gaussian.draw(size, std, self.words) * (np.arange(size) % 100 != 0)",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "return np.multiply(out, std, out=out)",
                "return np.multiply(out, std, out=out) * (np.arange(size) % 100 != 0)",
            ),
        ),
        audible=True,
    ),
    Fault(
        "half-noise-first",
        "the first half of a release has half the noise",
        (
            Edit(
                "noise.sampler:Sampler.steps",
                "discrete_gaussian.draw(size, std, self.words)",
                "discrete_gaussian.draw(size, std, self.words) // np.where(np.arange(size) < size // 2, 2, 1)",
            ),
            Edit(
                "noise.sampler:Sampler.normal",
                "return np.multiply(out, std, out=out)",
                "return np.multiply(out, std, out=out) / np.where(np.arange(size) < size // 2, 2, 1)",
            ),
        ),
        audible=True,
    ),
    Fault(
        "even-steps",
        "noise on the grid has an even number of steps always",
        (
            Edit(
                "site.noise:NoiseShare.noisy",
                "self._sampler.steps(self._size, own)",
                "2 * self._sampler.steps(self._size, own / 2)",
            ),
        ),
        audible=True,
    ),
    Fault(
        "short-key",
        "a key for noise has 32 bits",
        (Edit("noise.sampler:Sampler.system", "os.urandom(32)", "os.urandom(4) + bytes(28)"),),
    ),
    Fault(
        "seed-without-round",
        "a seed gives every round of a study the same noise",
        (Edit("site.site:Site._share", 'f"{self.name} {round} {attempt}"', 'f"{self.name} {attempt}"'),),
    ),
    Fault(
        "forked-noise",
        "a forked process draws its parent's noise again",
        (Edit("noise.sampler:Sampler.words", "if self._rekey and", "if False and"),),
    ),
]

_SENSITIVITIES = [
    Fault(
        f"{name.replace('_', '-')}-sensitivity",
        f"the sensitivity of {name} 3 % too small",
        (Edit(f"statistics.{target}.sensitivity", f"return {value}", f"return 0.97 * {value}"),),
        audible=name == "vector_sum",
    )
    for name, target, value in (
        ("vector_sum", "vectors:VectorSum", "2 * self.clip"),
        ("histogram", "histogram:Histogram", "math.sqrt(2)"),
        ("second_moment", "moments:SecondMoment", "math.sqrt(2)"),
        ("cluster_sums", "clusters:ClusterSums", "2.0"),
        ("scatter", "scatter:OwnMatrix", "math.sqrt(2)"),
        ("rotation_score", "rotation:RotationScore", "2.0"),
        ("band_scatter", "bands:BandScatter", "math.sqrt(2)"),
        ("user", "user:UserStatistic", "2 * self.clip"),
    )
]

_KERNEL = [
    Fault(
        "uncounted-colluders",
        "the calibration forgets the colluders",
        (
            Edit(
                "kernel.view:worst_mu",
                "law.sites - coalition.honest(law.sites)",
                "coalition.dropouts",
            ),
        ),
        audible=True,
    ),
    Fault(
        "uncounted-dropouts",
        "the calibration forgets the sites that may be lost",
        (
            Edit(
                "kernel.view:worst_mu",
                "law.sites - coalition.honest(law.sites)",
                "coalition.colluders",
            ),
        ),
    ),
    Fault(
        "extra-delta",
        "what finite arithmetic adds to delta is not paid for",
        (Edit("kernel.terms:Terms._calibrated", "self.delta - extra_delta", "self.delta"),),
    ),
    Fault(
        "whole-budget",
        "every release of a study gets the whole budget",
        (Edit("kernel.terms:Terms._calibrated", " * math.sqrt(min(release.share, 1.0))", ""),),
    ),
    Fault(
        "summation-slack",
        "the rounding of sums is left out of how far a unit moves a message",
        (Edit("kernel.grid:place", " + summation_slack() * bound", ""),),
    ),
    Fault(
        "rounding-slack",
        "the rounding to the grid is left out of how far a unit moves a message",
        (Edit("kernel.grid:place", "rounding=step * math.sqrt(size) +", "rounding="),),
    ),
    Fault(
        "scale-in-divisor",
        "a site's scale is left out of what a sum is divided by",
        (Edit("kernel.plan:Plan.effective_units", "* law.factor[index[n]] *", "*"),),
    ),
    Fault(
        "composition",
        "of several releases only the dearest counts",
        (Edit("kernel.accountant:compose", "math.sqrt(math.fsum(mu * mu for mu in mus))", "max(mus, default=0.0)"),),
    ),
    Fault(
        "unclipped-row",
        "the first row of a block is not clipped",
        (
            Edit(
                "statistics.rows:clip_rows",
                "norm <= radius / size",
                "(norm <= radius / size) | (xp.arange(rows.shape[0]) == 0)",
            ),
        ),
    ),
    Fault(
        "crowd-clip",
        "how a row is clipped depends on whether all rows of its block have sound squares",
        (
            Edit(
                "statistics.rows:sized",
                "plain = (squares > 1e-200) & (squares < 1e200)",
                "plain = xp.full_like(squares, bool(xp.all((squares > 1e-200) & (squares < 1e200))), dtype=xp.bool)",
            ),
        ),
    ),
    Fault(
        "crowd-clusters",
        "the nearest centre is read off a product whose rounding depends on who else is there",
        (
            Edit(
                "statistics.clusters:ClusterSums._nearest",
                "rounded(rows * (2.0**BITS / self.clip))",
                "rows * (2.0**BITS / self.clip)",
            ),
        ),
    ),
    Fault(
        "crowd-projection",
        "a norm to divide by follows a product whose rounding depends on who else is there",
        (Edit("statistics.rows:Exact.seen", "whole(rows, norm)", "rows * (2.0**BITS / norm)[:, None]"),),
    ),
    Fault(
        "refusal-by-data",
        "a contribution that fails for one unit ends the study after consent",
        (Edit("kernel.statistic:BoundedStatistic._part", "except Exception:", "except ZeroDivisionError:"),),
    ),
    Fault(
        "rows-for-people",
        "a person with many rows counts by rows",
        (Edit("kernel.units:Units.row_weights", "np.repeat(1 / sizes, sizes)", "np.repeat(1.0 + 0 * sizes, sizes)"),),
    ),
    Fault(
        "histogram-twice",
        "a histogram counts each value twice",
        (Edit("statistics.histogram:Histogram.sum_block", "weights=weights", "weights=2 * weights"),),
    ),
]

_SITE = [
    Fault(
        "ledger-after-masking",
        "the ledger is charged after a reply was masked and remembered: a second try gets it for nothing",
        (
            Edit(
                "site.site:Site.handle[Contribute]",
                """    if plan.scheme.name != "non-private":
        self._books().record(self._spend(plan, round, attempt, asked), self.policy.cap)
    if plan.law(round).mixing is Mixing.MASKED:
        payload = self._masked(plan, round, payload.view(np.uint64), message.request)
    return self._remember(Contribute, round, attempt, asked, Contribution(self.name, payload))""",
                """    if plan.law(round).mixing is Mixing.MASKED:
        payload = self._masked(plan, round, payload.view(np.uint64), message.request)
    reply = self._remember(Contribute, round, attempt, asked, Contribution(self.name, payload))
    if plan.scheme.name != "non-private":
        self._books().record(self._spend(plan, round, attempt, asked), self.policy.cap)
    return reply""",
            ),
        ),
    ),
    Fault(
        "half-the-spend",
        "half of the mu is written into the ledger",
        (Edit("site.site:Site._spend", "mu=mu,", "mu=mu / 2,"),),
    ),
    Fault(
        "no-distance",
        "what finite arithmetic costs is not written into the ledger",
        (Edit("site.site:Site._spend", "distance=plan.distance(round),", ""),),
    ),
    Fault(
        "answered-again",
        "a request to prepare that is repeated gets a fresh key, or fresh noise",
        (
            Edit(
                "site.site:Site._again",
                "before = self._answered.get((kind, round, attempt))",
                "before = None",
            ),
        ),
    ),
    Fault(
        "first-release-checked",
        "of a study only the first release is held against the cap before a site agrees",
        (Edit("site.site:Site.handle[Propose]", "range(len(plan.releases))", "range(1)"),),
    ),
    Fault(
        "record-study",
        "a study of records is accepted where units own several rows",
        (
            Edit(
                "site.site:Site._review",
                'if plan.unit == "record" and self.units.largest > 1:',
                "if False:",
            ),
        ),
    ),
    Fault(
        "foreign-sensitivity",
        "a site takes the planned sensitivity for its own",
        (
            Edit(
                "site.site:Site._built",
                "if sensitivity > planned.sensitivity * allowed or bound > planned.bound * allowed:",
                "if False:",
            ),
        ),
    ),
    Fault(
        "beyond-its-bound",
        "a sum that is longer than its bound allows leaves the site",
        (Edit("site.site:Site._total", "return total / excess if excess > 1 else total", "return total"),),
    ),
    Fault(
        "no-cap",
        "the lifetime cap is ignored",
        (Edit("site.ledger:Ledger._fit", "if total > cap.epsilon * (1 + _ROUNDING):", "if False:"),),
    ),
    Fault(
        "counter-stands-still",
        "the ledger's counter is written once and not advanced: an older copy is accepted",
        (
            Edit(
                "site.ledger:Ledger._advance",
                "if _read_counter(self.counter) == head:",
                "if _read_counter(self.counter) is not None:",
            ),
        ),
    ),
    Fault(
        "not-on-disk",
        "the ledger does not wait for the disk",
        (Edit("site.ledger:_connect", "synchronous=FULL", "synchronous=OFF"),),
    ),
    Fault(
        "broken-chain",
        "a ledger's digests are not compared",
        (Edit("site.ledger:Ledger._absorb", "or digest != _digest(previous, body)", ""),),
    ),
    Fault(
        "rows-per-person",
        "a study of records is charged to people as if each had one",
        (Edit("site.account:Account.charge", "spend.mu * self.rows_per_unit", "spend.mu"),),
    ),
    Fault(
        "largest-distance",
        "of what finite arithmetic costs in several releases only the largest counts",
        (
            Edit(
                "site.account:Total.plus",
                "distance += Fraction(spend.distance)",
                "distance = max(distance, Fraction(spend.distance))",
            ),
        ),
    ),
    Fault(
        "unpinned-site",
        "a plan that pins no identity for a site passes a policy that does",
        (
            Edit(
                "site.policy:Policy.review_roster",
                "if identity != self.roster[name]:",
                "if identity not in (None, self.roster[name]):",
            ),
        ),
    ),
    Fault(
        "seed-on-private-data",
        "a seed is accepted on private data",
        (Edit("site.policy:Policy._review_private", "if seeded:", "if False:"),),
    ),
    Fault(
        "too-few-units",
        "the least number of units is not asked for",
        (Edit("site.policy:Policy.review", "if units < self.minimum_units:", "if False:"),),
    ),
    Fault(
        "shared-ledger",
        "two sites of one study may charge one ledger",
        (Edit("study.planning:roster", "if len(set(ledgers)) < len(ledgers):", "if False:"),),
    ),
]

_SECAGG = [
    Fault(
        "threshold",
        "one share too few opens a secret",
        (Edit("secagg.graph:shape", "(sites + colluders) // 2 + 1)", "(sites + colluders) // 2)"),),
    ),
    Fault(
        "sparse-threshold",
        "one share too few opens a secret among many sites",
        (Edit("secagg.graph:_sparse_threshold", "(degree + 1 + beside) // 2 + 1", "(degree + 1 + beside) // 2"),),
    ),
    Fault(
        "signatures",
        "one signature too few under a list",
        (
            Edit(
                "secagg.session:Roster.signatures",
                "(self.sites + self.colluders) // 2 + 1",
                "(self.sites + self.colluders) // 2",
            ),
        ),
    ),
    Fault(
        "shamir",
        "one share less than the threshold gives a secret",
        (Edit("secagg.shamir:split", "range(threshold - 1)", "range(threshold - 2)"),),
    ),
    Fault(
        "short-list",
        "a list of survivors may be one too short",
        (
            Edit(
                "secagg.session:SiteSession._listed",
                "< sites - self._roster.dropouts:",
                "< sites - self._roster.dropouts - 1:",
            ),
        ),
    ),
    Fault(
        "second-list",
        "a site acts on two lists in one attempt",
        (Edit("secagg.session:SiteSession._listed", "if state.listed not in (None, listed):", "if False:"),),
    ),
    Fault(
        "unsigned",
        "signatures of messages are not checked",
        (Edit("secagg.session:Roster.take", "message.check(self.identities[message.sender])", "pass"),),
    ),
    Fault(
        "unsigned-list",
        "signatures under a list are not checked",
        (
            Edit(
                "secagg.session:SiteSession._check_warrant",
                "signed.check(self._roster.identities[sender])",
                "pass",
            ),
        ),
    ),
    Fault(
        "copied-key",
        "a key that another site advertised is accepted",
        (Edit("secagg.session:Adverts.read", "if len(set(everything)) < len(everything):", "if False:"),),
    ),
    Fault(
        "mask-again",
        "two rounds have the same masks",
        (
            Edit(
                "secagg.session:SiteSession.__init__",
                "[_Attempt(keys.new_secret(), os.urandom(32)) for _ in range(roster.attempts)]",
                "[_Attempt(s, s) for s in [keys.new_secret()] for _ in range(roster.attempts)]",
            ),
            Edit("secagg.session:Adverts.read", "if len(set(everything)) < len(everything):", "if False:"),
            Edit(
                "secagg.session:Adverts.context",
                "self.digest + attempt.to_bytes(4) + hashlib.sha256(asked).digest()",
                "self.digest",
            ),
        ),
    ),
    Fault(
        "mask-in-blocks",
        "every block of a vector has the same mask",
        (
            Edit(
                "secagg.masks:add",
                "for stream, plus in streams:",
                "for stream, plus in"
                " [(Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor(), plus) for key, plus in keys]:",
            ),
        ),
    ),
    Fault(
        "mask-without-context",
        "sites that were asked different things cancel each other's masks",
        (Edit("secagg.session:Adverts.context", " + hashlib.sha256(asked).digest()", ""),),
    ),
]

FAULTS = {fault.name: fault for fault in (*_NOISE, *_SENSITIVITIES, *_KERNEL, *_SITE, *_SECAGG)}
