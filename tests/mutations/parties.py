"""Faults of a site (ledger, policy, consent) and of secure aggregation."""

from mutations.fault import Edit, Fault

# Faults of sites: charging, repeated answers, keys, publications, ledger files.
SITE = [
    # Charging: the ledger must be written before a reply exists, and with the full cost.
    Fault(
        "ledger-after-masking",
        "the ledger is charged after a reply was masked and remembered: a second try gets it for nothing",
        (
            Edit(
                "site.site:Site.handle[Contribute]",
                """    self._charge(plan, round, attempt, asked)
    payload: Floats | Steps | bytes = noisy
    if hidden:
        payload = self._masked(plan, round, attempt, noisy.view(np.uint64), message.request, committed)
    return self._remember(Contribute, round, attempt, asked, Contribution(self.name, payload))""",
                """    payload: Floats | Steps | bytes = noisy
    if hidden:
        payload = self._masked(plan, round, attempt, noisy.view(np.uint64), message.request, committed)
    reply = self._remember(Contribute, round, attempt, asked, Contribution(self.name, payload))
    self._charge(plan, round, attempt, asked)
    return reply""",
            ),
        ),
    ),
    Fault(
        "half-the-spend",
        "half of the mu is written into the ledger",
        (Edit("site.budget:spend_of", "mu=mu,", "mu=mu / 2,"),),
    ),
    Fault(
        "no-distance",
        "what finite arithmetic costs is not written into the ledger",
        (Edit("site.budget:spend_of", "distance=plan.distance(round) * steps,", ""),),
    ),
    # Repeated requests, and checks before consent.
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
        (Edit("site.budget:unpaid", "range(begun + 1, len(plan.releases))", "range(begun + 1, 1)"),),
    ),
    Fault(
        "record-study",
        "a study of records is accepted where units own several rows",
        (
            Edit(
                "site.schema:DataSchema.refusals",
                'if plan.unit == "record" and self.rows_per_unit > 1:',
                "if False:",
            ),
        ),
    ),
    Fault(
        "foreign-sensitivity",
        "a site takes the planned sensitivity for its own",
        (
            Edit(
                "site.site:Site._fits",
                "if sensitivity > planned.sensitivity * allowed or bound > planned.bound * allowed:",
                "if False:",
            ),
        ),
    ),
    # Subsampled phases and repeated attempts.
    Fault(
        "one-step-reserved",
        "of a phase of many steps one is written into the ledger",
        (Edit("site.site:Site._charge", "attempt, asked, steps)", "attempt, asked, 1)"),),
    ),
    Fault(
        "same-sample",
        "every step of a phase samples the same units",
        (
            Edit(
                "site.site:Site._values",
                'self._sampler(plan, round, f"sample {attempt}" if attempt else "sample", secret)',
                'Sampler.seeded(b"")',
            ),
        ),
    ),
    Fault(
        "sampled-loss",
        "a sampled unit is accounted as if it moved a sum by half its bound",
        (Edit("kernel.terms:PlannedRelease.accounted", "else self.bound", "else self.bound / 2"),),
    ),
    Fault(
        "attempts-unpaid",
        "a study's noise is as if no round could be tried again",
        (Edit("kernel.plan:Plan._targets", "self.attempts * max(rounds.values())", "0"),),
    ),
    Fault(
        "attempt-for-nothing",
        "another attempt at a step is drawn from the phase's reservation, as if it were the first",
        (Edit("site.site:Site._charge", "if attempt == 0:", "if True:"),),
    ),
    Fault(
        "finished-round-again",
        "a site that restarted answers the last finished round again",
        (
            Edit(
                "site.ledger_records:StudyProgress.check_turn", "if attempt == 0 and round == self.round:", "if False:"
            ),
        ),
    ),
    Fault(
        "resumed-under-another-plan",
        "a phase that was paid for under one plan is continued under another, with less noise",
        (Edit("site.ledger_records:StudyProgress.check", "if self.round >= 0 and self.plan != plan:", "if False:"),),
    ),
    Fault(
        "sample-again",
        "another attempt at a step has the sample of the first",
        (Edit("site.site:Site._values", 'f"sample {attempt}" if attempt else "sample"', '"sample"'),),
    ),
    Fault(
        "keys-again",
        "attempts beyond the first share keys of the secure sum with rounds",
        (Edit("protocol.roster:slot", "plan.rounds + attempt - 1", "round"),),
    ),
    # Publications of records.
    Fault(
        "published-unasked",
        "records are published whatever the policy says",
        (Edit("site.policy:Policy.refusals", "if not self.publications and any(", "if False and any("),),
    ),
    Fault(
        "laplace-unasked",
        "a study has Laplace noise whatever the policy says",
        (Edit("site.policy:Policy.refusals", "if strange := sorted(laws - set(self.noise)):", "if strange := []:"),),
    ),
    Fault(
        "published-for-a-sum",
        "a site publishes records where a sum was planned",
        (Edit("site.site:Site._fits", "if (kind, sampling) != (planned.kind, planned.sampling):", "if False:"),),
    ),
    # Reserved budget of running studies.
    Fault(
        "nothing-held",
        "what was promised to one study is promised to the next as well",
        (
            Edit(
                "site.service:Service._promised",
                "if each.plan.scheme.facts.noisy and not self._given_up(each):",
                "if False:",
            ),
        ),
    ),
    Fault(
        "held-unasked",
        "a study that was quiet for too long goes on with what others were promised since",
        (Edit("site.service:Service._reserve", "if session.lapsed:", "if False:"),),
    ),
    # Withdrawn keys.
    Fault(
        "withdrawn-key",
        "a key that was withdrawn takes part as before",
        (
            Edit(
                "site.service:Service._check_keys",
                "withdrawn = self._consents.withdrawn()",
                "withdrawn = frozenset[str]()",
            ),
        ),
    ),
    Fault(
        "withdrawn-in-the-middle",
        "a study that began goes on with a key that was withdrawn since",
        (
            Edit(
                "site.service:Service._handle",
                "self._check_keys(plan)",
                "isinstance(message, Propose) and self._check_keys(plan)",
            ),
        ),
    ),
    Fault(
        "former-key-for-ever",
        "a key that this site has replaced and withdrawn serves on",
        (
            Edit(
                "site.service:Service._check_keys",
                "if site.identity in withdrawn]",
                "if site.identity in withdrawn and site.name != self.name]",
            ),
        ),
    ),
    # Noise and order of published records.
    Fault(
        "one-noise-for-all-records",
        "all records of a site are published under the same draws",
        (
            Edit(
                "site.site:Site.handle[Contribute]",
                "    self._charge(plan, round, attempt, asked)\n    payload:",
                """    values = self._values(plan, round, attempt, message.request, secret)
    if values.ndim > 1:
        plain = np.rint(values / plan.law(round).step).astype(np.int64)
        noisy = plain + (noisy - plain)[:1]
    self._charge(plan, round, attempt, asked)
    payload:""",
            ),
        ),
    ),
    Fault(
        "published-order",
        "records are published in the order of the data, which may be sorted by what is secret",
        (Edit("site.site:Site._values", "return rows[self._order(plan, round, attempt, secret)]", "return rows"),),
    ),
    Fault(
        "published-class",
        "the class that is published with a record is not in its sensitivity",
        (Edit("statistics.records:LabelledRecords.sensitivity", "4 + 2 * self.label_weight**2", "4"),),
    ),
    # Bounds, caps and the ledger file.
    Fault(
        "beyond-its-bound",
        "a sum that is longer than its bound allows leaves the site",
        (Edit("site.site:Site._total", "return total / excess if excess > 1 else total", "return total"),),
    ),
    Fault(
        "no-cap",
        "the lifetime cap is ignored",
        (Edit("site.ledger:Ledger._fit", "if cap.exceeded(total):", "if False:"),),
    ),
    Fault(
        "counter-stands-still",
        "the ledger's counter is written once and not advanced: an older copy is accepted",
        (
            Edit(
                "site.ledger:Ledger._advance",
                "if read_counter(self.counter) == head:",
                "if read_counter(self.counter) is not None:",
            ),
        ),
    ),
    Fault(
        "not-on-disk",
        "the ledger does not wait for the disk",
        (Edit("site.ledger_file:connect", "synchronous=FULL", "synchronous=OFF"),),
    ),
    Fault(
        "broken-chain",
        "a ledger's digests are not compared",
        (Edit("site.ledger:Ledger._absorb", "or digest != chained(previous, body)", ""),),
    ),
    Fault(
        "rows-per-person",
        "a study of records is charged to people as if each had one",
        (Edit("site.ledger_records:Account.charge", "spend.mu * self.rows_per_unit", "spend.mu"),),
    ),
    Fault(
        "largest-distance",
        "of what finite arithmetic costs in several releases only the largest counts",
        (
            Edit(
                "site.ledger_records:Total.plus",
                "distance += Fraction(spend.distance)",
                "distance = max(distance, Fraction(spend.distance))",
            ),
        ),
    ),
    # Policy checks.
    Fault(
        "unpinned-site",
        "a plan that pins no identity for a site passes a policy that does",
        (
            Edit(
                "site.policy:Policy._review_roster",
                "if site.identity not in _keys(self.roster[site.name]):",
                "if site.identity not in (None, *_keys(self.roster[site.name])):",
            ),
        ),
    ),
    Fault(
        "seed-on-private-data",
        "a seed is accepted on private data",
        (Edit("site.policy:Policy._review_private", "if plan.seed is not None:", "if False:"),),
    ),
    Fault(
        "too-few-units",
        "the least number of units is not asked for",
        (Edit("site.policy:Policy.refusals", "if units is not None and units < self.minimum_units:", "if False:"),),
    ),
    Fault(
        "shared-ledger",
        "two sites of one study may charge one ledger",
        (Edit("study.planning:roster_with_identities", "if len(set(ledgers)) < len(ledgers):", "if False:"),),
    ),
]

# Faults of secure aggregation: thresholds, signatures, keys, masks.
SECAGG = [
    # Thresholds of secret sharing and of signatures.
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
    # Lists of surviving sites.
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
    # Signatures.
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
    # Trees.
    Fault(
        "tree-of-any-scheme",
        "inner nodes of a tree relay messages without masks",
        (
            Edit(
                "kernel.terms:Terms.__post_init__",
                "if self.parents and self.scheme.facts.mechanism is not NoiseMechanism.MASKED:",
                "if False:",
            ),
        ),
    ),
    Fault(
        "no-masks",
        "no mask is added to a vector, and none is removed from the sum",
        (Edit("secagg.masks:_add", "for stream, plus in streams:", "for stream, plus in streams[:0]:"),),
    ),
    # Keys and masks.
    Fault(
        "copied-key",
        "a key that another site advertised is accepted",
        (
            Edit(
                "secagg.session:Adverts.read",
                "if len({keys.essence(key) for key in everything}) < len(everything):",
                "if False:",
            ),
        ),
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
            Edit(
                "secagg.session:Adverts.read",
                "if len({keys.essence(key) for key in everything}) < len(everything):",
                "if False:",
            ),
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
                "secagg.masks:_add",
                "for stream, plus in streams:",
                "for stream, plus in"
                " [(Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor(), plus) for key, plus in keys]:",
            ),
        ),
    ),
    Fault(
        "mask-in-parts",
        "every part of a long vector has the same mask",
        (
            Edit(
                "secagg.masks:_add",
                "counter = modes.CTR((first // 2).to_bytes(16))",
                "counter = modes.CTR(bytes(16))",
            ),
        ),
    ),
    Fault(
        "mask-without-context",
        "sites that were asked different things cancel each other's masks",
        (Edit("secagg.session:Adverts.context", " + hashlib.sha256(asked).digest()", ""),),
    ),
]
