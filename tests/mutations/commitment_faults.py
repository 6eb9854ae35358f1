"""Faults of commitments, of blame, and of the secrets that a site keeps for its auditor."""

from mutations.fault import Edit, Fault

COMMITMENTS = [
    Fault(
        "secret-again",
        "every contribution of every site has the same secret",
        (Edit("noise.sampler:new_secret", "os.urandom(32)", "bytes(32)"),),
    ),
    Fault(
        "one-stream-for-all",
        "noise, samples and orders of an attempt are drawn from one stream",
        (Edit("noise.sampler:Sampler.of_secret", 'b"stream " + purpose.encode()', 'b"stream"'),),
    ),
    Fault(
        "secret-for-everybody",
        "the secrets that a site keeps can be read by all users of its machine",
        (
            Edit(
                "site.secrets_kept:KeptSecrets.keep",
                'write_file(folder / f"{kept.round}-{kept.attempt}.json", kept.as_text())',
                '(folder / f"{kept.round}-{kept.attempt}.json").write_bytes(kept.as_text())',
            ),
        ),
    ),
    Fault(
        "commitment-without-salt",
        "a short vector with its noise can be guessed from the commitment to it",
        (
            Edit(
                "secagg.commitments:to_contribution",
                'keys.derive(secret, "commitment salt", about)',
                "bytes(32)",
            ),
        ),
    ),
    Fault(
        "commitment-without-place",
        "a commitment says nothing of study, attempt, request and site",
        (
            Edit("secagg.commitments:to_contribution", 'b"zerosum contribution 1\\0" + about', "b''"),
            Edit("secagg.commitments:to_secret", "about)", "b'')"),
        ),
    ),
    Fault(
        "commitment-of-anything",
        "a vector is added with the commitments of another request, attempt or site",
        (Edit("secagg.addition:Addition.take", "self._check(sorted(listed), committed)", "pass"),),
    ),
    Fault(
        "any-seed-opened",
        "a site may open another self-mask seed than it signed the hash of",
        (
            Edit(
                "secagg.blame:secret_fits",
                "commitments.seed_hash(secret, roster.digest, site, attempt) == known.seeds[site][attempt]",
                "True",
            ),
        ),
    ),
    Fault(
        "any-share-opened",
        "a holder may open another share than it was dealt, and its dealer is blamed",
        (Edit("secagg.blame:Dealt.holds", "return hashed == ", "return True or "),),
    ),
    Fault(
        "second-list-of-hashes",
        "a dealer that signs two lists of hashes has a proof against the holder of its shares",
        (Edit("secagg.blame:guilty", " or received.get(hashes.dealer) != hashes.digest(holder)", ""),),
    ),
    Fault(
        "opening-of-another-set-up",
        "what a site opened in an earlier set-up proves it guilty in a later one",
        (Edit("secagg.blame:Opening.read", "if message.body[width : width + 32] != known.digest:", "if False:"),),
    ),
    Fault(
        "contradictions-ignored",
        "a set-up goes on although two sites signed different hashes",
        (Edit("coordinator.secure:SecureSums.set_up", "disputes = self._collector.disputes()", "disputes = []"),),
    ),
    Fault(
        "sum-of-any-length",
        "an opened sum beyond the bound of all sites is released",
        (Edit("coordinator.secure:SecureSums.finish", "if norm(total) > largest(listed):", "if False:"),),
    ),
]
