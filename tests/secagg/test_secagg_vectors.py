"""The primitives against published vectors, and against second implementations that pass those vectors themselves."""

from __future__ import annotations

import hmac
import random
import secrets
import struct
from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher

from zerosum.errors import BadParameter, Forged, Inconsistent
from zerosum.secagg import keys, masks, shamir

hx = bytes.fromhex

# -- X25519: RFC 7748 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scalar", "point", "product"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_x25519_equals_rfc_vectors(scalar: str, point: str, product: str) -> None:
    assert keys.agree(hx(scalar), hx(point)) == hx(product)


def test_x25519_iterated_1000_times_equals_rfc_vector() -> None:
    k = u = hx("09" + 31 * "00")
    for step in range(1000):
        k, u = keys.agree(k, u), k
        if step == 0:
            assert k == hx("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079")
    assert k == hx("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51")


def test_x25519_agreement_equals_rfc_vector() -> None:
    alice = hx("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = hx("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert keys.public_of(alice) == hx("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    assert keys.public_of(bob) == hx("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    shared = hx("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert keys.agree(alice, keys.public_of(bob)) == keys.agree(bob, keys.public_of(alice)) == shared


LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    hx("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    hx("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]


@pytest.mark.parametrize("point", [*LOW_ORDER, b"", bytes(31), bytes(33)], ids=lambda point: point.hex()[:16])
def test_x25519_point_of_small_order_is_refused(point: bytes) -> None:
    with pytest.raises(Forged):
        keys.agree(keys.new_secret(), point)


# -- Ed25519: RFC 8032 section 7.1 -----------------------------------------------------------------------------------


def test_ed25519_signature_of_rfc_vector_checks_and_others_are_refused() -> None:
    public = hx("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    signature = hx(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    keys.check_signature(public, signature, b"")
    for wrong in (signature[:-1], bytes(64), b""):
        with pytest.raises(Forged):
            keys.check_signature(public, wrong, b"")
    with pytest.raises(Forged):
        keys.check_signature(public[:-1], signature, b"")


# -- HKDF: RFC 5869 --------------------------------------------------------------------------------------------------


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    prk = hmac.digest(salt or bytes(32), secret, "sha256")
    output, block = b"", b""
    for counter in range(1, length // 32 + 2):
        block = hmac.digest(prk, block + info + bytes([counter]), "sha256")
        output += block
    return output[:length]


@pytest.mark.parametrize(
    ("secret", "salt", "info", "output"),
    [
        (
            b"\x0b" * 22,
            bytes(range(13)),
            bytes(range(0xF0, 0xFA)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            bytes(range(80)),
            bytes(range(0x60, 0xB0)),
            bytes(range(0xB0, 0x100)),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
            "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            b"\x0b" * 22,
            b"",
            b"",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ],
)
def test_hkdf_equals_rfc_vectors(secret: bytes, salt: bytes, info: bytes, output: str) -> None:
    assert hkdf(secret, salt, info, len(output) // 2) == hx(output)


@pytest.mark.parametrize(
    ("purpose", "context"), [("seal", b""), ("pair mask", b"0 1 \0\xff"), ("self mask", b"x" * 99)]
)
def test_derive_equals_hkdf_with_purpose_and_context(purpose: str, context: bytes) -> None:
    secret = secrets.token_bytes(32)
    info = b"zerosum secagg 1\0" + purpose.encode() + b"\0" + context
    assert keys.derive(secret, purpose, context) == hkdf(secret, b"", info, 32)


# -- AES-256-CTR: NIST SP 800-38A F.5.5 ------------------------------------------------------------------------------


def double(byte: int) -> int:
    return (byte << 1) ^ (0x11B if byte & 0x80 else 0)


def s_box() -> list[int]:
    box, p, q = [0x63] * 256, 1, 1
    while True:
        p ^= double(p)  # times 3
        for shift in (1, 2, 4):
            q ^= q << shift & 0xFF
        q ^= 0x09 if q & 0x80 else 0  # divided by 3
        turned = q
        for shift in range(1, 5):
            turned ^= (q << shift | q >> (8 - shift)) & 0xFF
        box[p] = turned ^ 0x63
        if p == 1:
            return box


BOX = s_box()


def aes256(key: bytes, block: bytes) -> bytes:
    """One block by FIPS 197, the slow way."""
    words = [list(key[at : at + 4]) for at in range(0, 32, 4)]
    constant = 1
    for n in range(8, 60):
        word = words[-1]
        if n % 8 == 0:
            word = [BOX[b] for b in word[1:] + word[:1]]
            word[0] ^= constant
            constant = double(constant)
        elif n % 8 == 4:
            word = [BOX[b] for b in word]
        words.append([a ^ b for a, b in zip(words[n - 8], word, strict=True)])
    rounds = [[b for word in words[at : at + 4] for b in word] for at in range(0, 60, 4)]
    state = [a ^ b for a, b in zip(block, rounds[0], strict=True)]
    for number in range(1, 15):
        state = [BOX[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]
        if number < 14:
            mixed = []
            for at in range(0, 16, 4):
                column = state[at : at + 4]
                every = column[0] ^ column[1] ^ column[2] ^ column[3]
                mixed += [column[r] ^ every ^ double(column[r] ^ column[(r + 1) % 4]) for r in range(4)]
            state = mixed
        state = [a ^ b for a, b in zip(state, rounds[number], strict=True)]
    return bytes(state)


def test_reference_aes_equals_nist_vector() -> None:
    key = hx("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    plain = hx(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    stream = b"".join(aes256(key, (counter + n).to_bytes(16)) for n in range(4))
    assert bytes(a ^ b for a, b in zip(plain, stream, strict=True)) == hx(
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )


@pytest.mark.parametrize("size", [1, 2, 7, 256])
def test_mask_equals_aes_stream_as_little_endian_integers(size: int) -> None:
    key = secrets.token_bytes(32)
    stream = b"".join(aes256(key, n.to_bytes(16)) for n in range(size // 2 + 1))
    expected = np.array(struct.unpack(f"<{size}Q", stream[: 8 * size]), dtype=np.uint64)
    vector = np.zeros(size, dtype=np.uint64)
    masks.add(vector, [(key, True)])
    np.testing.assert_array_equal(vector, expected)
    masks.add(vector, [(key, False), (key, False)])
    np.testing.assert_array_equal(vector, -expected)


@pytest.mark.parametrize(
    "size",
    [
        masks.BLOCK - 1,
        masks.BLOCK,
        masks.BLOCK + 1,
        3 * masks.BLOCK + 5,
        masks.PART,
        masks.PART + 1,
        3 * masks.PART + 7,
        masks.SERIAL_LENGTH + 1,
    ],
)
def test_mask_over_blocks_continues_and_never_repeats(size: int) -> None:
    key = random.randbytes(32)
    vector = np.zeros(size, dtype=np.uint64)
    parts: list[masks.Ring] = []
    masks.add(vector, [(key, True)], done=parts.append)
    np.testing.assert_array_equal(np.concatenate(parts), vector)
    for n in {0, 1, 2, size // 2, size - 2, size - 1} | {n for n in (masks.PART - 1, masks.PART) if n < size}:
        block = aes256(key, (n // 2).to_bytes(16))
        assert int(vector[n]) == struct.unpack_from("<Q", block, 8 * (n % 2))[0]
    assert len(np.unique(vector)) == size  # a repeat among a million numbers by chance: 3e-8


@pytest.mark.parametrize(
    "vector", [np.zeros((3, 3), np.uint64), np.zeros(3), np.zeros(3, np.int64), np.zeros((), np.uint64)]
)
def test_mask_of_other_shape_or_type_is_refused(vector: masks.Ring) -> None:
    with pytest.raises(BadParameter, match="uint64"):
        masks.add(vector, [(bytes(32), True)])


SIZES = [1, 2, 3, masks.BLOCK - 1, masks.BLOCK + 1, masks.PART, masks.PART + 1, 2 * masks.PART + masks.BLOCK + 3]
SIZES += [masks.SERIAL_LENGTH + masks.BLOCK + 3]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1, 3])
def test_mask_into_other_array_leaves_vector_unchanged(size: int, stride: int) -> None:
    """Into the middle of a message, where numbers lie at odd places, and from a vector that is no contiguous one."""
    streams = [(secrets.token_bytes(32), bool(n % 2)) for n in range(4)]
    vector = np.arange(stride * size, dtype=np.uint64)[::stride]
    vector.flags.writeable = False
    message = bytearray(b"\xaa" * (8 * size + 12))
    out = np.frombuffer(message, dtype="<u8", count=size, offset=5)
    parts: list[masks.Ring] = []
    masks.add(vector, streams, out, parts.append)
    expected = vector.copy()
    for stream in streams:
        masks.add(expected, [stream])
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    np.testing.assert_array_equal(vector, stride * np.arange(size, dtype=np.uint64))
    assert message[:5] + message[-7:] == b"\xaa" * 12


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_mask_number_of_threads_changes_no_bit(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [(secrets.token_bytes(32), True), (secrets.token_bytes(32), False)]
    vector = np.arange(5 * masks.PART + 11, dtype=np.uint64)
    one, other = np.zeros_like(vector), np.zeros_like(vector)
    masks.add(vector, streams, one)  # on no thread but this one
    monkeypatch.setattr(masks, "SERIAL_LENGTH", masks.PART)
    monkeypatch.setattr(masks, "THREADS", threads)
    masks.add(vector, streams, other)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("room", [1, 4, 6])
def test_mask_into_other_size_is_refused(room: int) -> None:
    with pytest.raises(BadParameter, match="5"):
        masks.add(np.zeros(5, np.uint64), [(bytes(32), True)], np.zeros(room, np.uint64))


def test_mask_cipher_failing_midway_leaves_no_number_unmasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two masks fails from the third block on: a number has both masks, or it was not written."""
    streams = [(secrets.token_bytes(32), True), (secrets.token_bytes(32), True)]
    vector = np.arange(1, masks.PART, dtype=np.uint64)
    whole, out = np.zeros_like(vector), np.zeros_like(vector)
    masks.add(vector, streams, whole)
    calls = 0

    class Failing:
        def __init__(self, *how: Any) -> None:
            self._cipher = Cipher(*how).encryptor()

        def encryptor(self) -> Failing:
            return self

        def update_into(self, data: bytes, buffer: bytearray) -> int:
            nonlocal calls
            calls += 1
            if calls == 6:
                raise MemoryError
            return self._cipher.update_into(data, buffer)

    monkeypatch.setattr(masks, "Cipher", Failing)
    with pytest.raises(MemoryError):
        masks.add(vector, streams, out)
    np.testing.assert_array_equal(out[: 2 * masks.BLOCK], whole[: 2 * masks.BLOCK])
    assert not out[2 * masks.BLOCK :].any()


# -- ChaCha20-Poly1305: RFC 8439 -------------------------------------------------------------------------------------


def chacha20(key: bytes, nonce: bytes, counter: int, size: int) -> bytes:
    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, shift in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            turned = state[z] ^ state[x]
            state[z] = (turned << shift | turned >> (32 - shift)) & 0xFFFFFFFF

    output = b""
    while len(output) < size:
        start = struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce)
        state = list(start)
        for _ in range(10):
            for n in range(4):
                quarter(n, 4 + n, 8 + n, 12 + n)
            for n in range(4):
                quarter(n, 4 + (n + 1) % 4, 8 + (n + 2) % 4, 12 + (n + 3) % 4)
        output += struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start, strict=True)))
        counter += 1
    return output[:size]


def slow_seal(key: bytes, nonce: bytes, content: bytes, about: bytes) -> bytes:
    text = bytes(a ^ b for a, b in zip(content, chacha20(key, nonce, 1, len(content)), strict=True))
    one_time = chacha20(key, nonce, 0, 32)
    r = int.from_bytes(one_time[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    s = int.from_bytes(one_time[16:], "little")
    padded = about + bytes(-len(about) % 16) + text + bytes(-len(text) % 16) + struct.pack("<QQ", len(about), len(text))
    tag = 0
    for at in range(0, len(padded), 16):
        tag = (tag + int.from_bytes(padded[at : at + 16], "little") + 2**128) * r % (2**130 - 5)
    return text + ((tag + s) % 2**128).to_bytes(16, "little")


def test_reference_seal_equals_rfc_vector() -> None:
    sealed = slow_seal(
        bytes(range(0x80, 0xA0)),
        hx("070000004041424344454647"),
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it.",
        hx("50515253c0c1c2c3c4c5c6c7"),
    )
    assert sealed == hx(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
        "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691"
    )


@pytest.mark.parametrize("size", [0, 1, 66, 1000])
def test_seal_equals_chacha20_poly1305_and_other_key_is_refused(size: int) -> None:
    key, content, about = secrets.token_bytes(32), secrets.token_bytes(size), secrets.token_bytes(32)
    sealed = keys.seal(key, content, about)
    assert sealed == slow_seal(key, bytes(12), content, about)
    assert len(sealed) == size + keys.SEAL_BYTES
    assert keys.unseal(key, sealed, about) == content
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    for wrong in ((bytes(32), sealed, about), (key, changed, about), (key, sealed, b""), (key, sealed[:-1], about)):
        with pytest.raises(Forged):
            keys.unseal(*wrong)
    for length in range(16):
        with pytest.raises(Forged):
            keys.unseal(key, sealed[:length], about)


# -- Shamir ----------------------------------------------------------------------------------------------------------


def test_shamir_modulus_is_prime() -> None:
    """Miller-Rabin with 40 random bases: a composite passes with probability below 4^-40."""
    odd, twos = shamir.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(40):
        power = pow(secrets.randbelow(shamir.PRIME - 3) + 2, odd, shamir.PRIME)
        assert power == 1 or any(pow(power, 2**n, shamir.PRIME) == shamir.PRIME - 1 for n in range(twos))


def solved(points: dict[int, int], prime: int) -> list[int]:
    """The polynomial through these points, by Gaussian elimination on Vandermonde's matrix."""
    size = len(points)
    rows = [[pow(x, n, prime) for n in range(size)] + [y] for x, y in points.items()]
    for n in range(size):
        pivot = next(row for row in rows[n:] if row[n])
        rows.remove(pivot)
        scale = pow(pivot[n], -1, prime)
        pivot = [value * scale % prime for value in pivot]
        rows = [[(a - row[n] * b) % prime for a, b in zip(row, pivot, strict=True)] for row in rows]
        rows.insert(n, pivot)
    return [row[-1] for row in rows]


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, secrets.token_bytes(32)], ids=["least", "most", "random"])
@pytest.mark.parametrize("threshold", range(1, 7))
def test_shamir_any_threshold_shares_give_secret(secret: bytes, threshold: int) -> None:
    holders = [1, 2, 3, 7, 40, 201]
    shares = shamir.split(secret, holders, threshold)
    values = {holder: int.from_bytes(share) for holder, share in shares.items()}
    for chosen in combinations(holders, threshold):
        assert shamir.combine({holder: shares[holder] for holder in chosen}) == secret
        polynomial = solved({holder: values[holder] for holder in chosen}, shamir.PRIME)
        assert polynomial[0] == int.from_bytes(secret)
    if threshold > 1:
        assert len(set(polynomial)) == threshold  # coefficients drawn afresh, none of them zero or the secret


@pytest.mark.parametrize("threshold", [2, 3])
def test_shamir_fewer_shares_have_same_law_for_any_secret(threshold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a field of 7 elements, over all coefficients: whatever the secret, threshold - 1 shares have one same law."""
    monkeypatch.setattr(shamir, "PRIME", 7)
    holders = [1, 2, 3, 4, 5]
    for chosen in combinations(holders, threshold - 1):
        laws = []
        for secret in range(7):
            law: Counter[tuple[bytes, ...]] = Counter()
            for drawn in product(range(7), repeat=threshold - 1):
                coins = {7: iter(drawn)}  # asked for elements of the whole field
                monkeypatch.setattr(secrets, "randbelow", lambda below, coins=coins: next(coins[below]))
                shares = shamir.split(secret.to_bytes(32), holders, threshold)
                law[tuple(shares[holder] for holder in chosen)] += 1
            laws.append(law)
        assert all(law == laws[0] for law in laws)
        assert set(laws[0].values()) == {1}
        assert len(laws[0]) == 7 ** (threshold - 1)


def test_shamir_too_few_or_foreign_shares_give_other_secret() -> None:
    secret = secrets.token_bytes(32)
    shares, others = shamir.split(secret, [1, 2, 3], 3), shamir.split(secret, [1, 2, 3], 3)
    assert shamir.combine({1: shares[1], 2: shares[2]}) != secret
    assert shamir.combine({1: shares[1], 2: shares[2], 3: others[3]}) != secret


def test_shamir_bad_secret_holders_or_shares_are_refused() -> None:
    for secret, holders, threshold in [
        (b"short", [1, 2], 2),
        (bytes(32), [1, 2], 3),
        (bytes(32), [1, 2], 0),
        (bytes(32), [1, 1], 2),
        (bytes(32), [0, 1], 2),
    ]:
        with pytest.raises(BadParameter):
            shamir.split(secret, holders, threshold)
    for share in (b"", bytes(32), bytes(34), shamir.PRIME.to_bytes(33), b"\xff" * 33):
        with pytest.raises(Inconsistent):
            shamir.combine({1: share})
    with pytest.raises(Inconsistent):
        shamir.combine({1: (2**256).to_bytes(33)})
