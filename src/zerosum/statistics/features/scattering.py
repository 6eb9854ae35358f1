"""The scattering transform of images: wavelet moduli of two orders, low-passed. Nothing of it is learned.

Bruna and Mallat, "Invariant scattering convolution networks" (2013). An image is convolved with Morlet wavelets of L
`angles` at the scales 1, 2, ..., 2^(J-1); the moduli are convolved with the coarser ones again. Each of the 1 + L J +
L^2 J (J-1)/2 channels is low-passed at the scale 2^J, sampled at that step, and kept as its lowest cosines. A group of
channels (all angles that follow one another from the same channel) is brought to mean 0 and size 1 first, by itself,
so that neither brightness nor contrast matters.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import constant_on, fold
from zerosum.compute.devices import array_on, is_gpu, to_numpy
from zerosum.statistics.features.base import FeatureMap

Singles = NDArray[np.float32]

_WIDTH = 0.8  # standard deviation of a wavelet's envelope, in samples of its own scale
_WAVE = 3 * math.pi / 4  # a wavelet's angular frequency at its own scale
_FLOOR = 1e-3  # added to a group's standard deviation, for pixels in [0, 1]: a group far below it is mostly rounding


class Scattering(FeatureMap):
    """Scattering features of grey images of `height` x `width` pixels, one a row, line by line.

    Pixels are clamped to [`lowest`, `highest`], which are public, and mapped to [0, 1]. A row of features has norm 1.

    Parameters
    ----------
    height, width : int
        Pixels of an image.
    lowest, highest : float
        Public range of all pixels.
    scales : int
        J, the number of scales of the wavelets.
    angles : int
        L, the number of their directions in half a turn.
    cosines : int
        Lowest cosines that are retained along each side.

    >>> Scattering(height=28, width=28).size
    625
    """

    kind: ClassVar[str] = "scattering"
    height: int = Field(ge=8, le=256)
    width: int = Field(ge=8, le=256)
    lowest: float = Field(default=0.0, ge=-1e9, le=1e9)
    highest: float = Field(default=255.0, ge=-1e9, le=1e9)
    scales: int = Field(default=2, ge=1, le=4)
    angles: int = Field(default=4, ge=1, le=16)
    cosines: int = Field(default=5, ge=1, le=64)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.highest - self.lowest < 1e-9:
            raise ValueError("highest must lie above lowest")
        if min(self.height, self.width) < 2**self.scales:
            raise ValueError(f"images must be at least {2**self.scales} pixels wide and high for {self.scales} scales")
        return self

    @property
    def inputs(self) -> int:
        """The number of pixels."""
        return self.height * self.width

    @property
    def channels(self) -> int:
        """1 + L J + L^2 J (J - 1)/2, the image and its moduli of first and second order."""
        return 1 + self.angles * self.scales + self.angles**2 * (self.scales * (self.scales - 1) // 2)

    @property
    def size(self) -> int:
        """The number of channels times the cosines along both sides."""
        return self.channels * len(self._cosines[0]) * len(self._cosines[1])

    # ---- constants -------------------------------------------------------------------------------------------------

    def _samples(self, length: int) -> int:
        """Number of samples of the coarsest step along a side of `length` pixels."""
        step = 1 << self.scales
        return (length + step - 1) // step

    def _padded(self, length: int) -> int:
        """Length of a side with a margin of one coarsest sample at either end, in pixels."""
        return (self._samples(length) + 2) << self.scales

    @cached_property
    def _mirrored(self) -> NDArray[np.intp]:
        """Index of the image's pixel at each pixel of the padded image: the padding reflects the image at its edges."""
        step = 2**self.scales
        rows, columns = (
            np.pad(np.arange(length), (step, self._padded(length) - length - step), mode="symmetric")
            for length in (self.height, self.width)
        )
        return (self.width * rows[:, None] + columns[None, :]).ravel()

    @cached_property
    def _wavelets(self) -> dict[tuple[int, int], Singles]:
        """Fourier transforms of the wavelets of scale j for images of which every 2^r-th pixel is left: real numbers,
        since a wavelet is its own conjugate seen in a mirror. One axis for the angles, two of size 1 for channels."""
        wavelets = {}
        for j in range(self.scales):
            for r in range(j + 1):
                shape = self._padded(self.height) >> r, self._padded(self.width) >> r
                turns = [math.pi * a / self.angles for a in range(self.angles)]
                wavelets[j, r] = np.stack([morlet(shape, j - r, turn, self.angles) for turn in turns]).astype(
                    np.float32
                )
        return wavelets

    @cached_property
    def _lowpass(self) -> dict[int, tuple[Singles, Singles]]:
        """Matrices that map the columns (left) and rows (right, transposed) of an image with every 2^r-th pixel to
        samples.
        """
        filters = {}
        for r in range(self.scales):
            tall, wide = (self._gaussians(length, r) for length in (self.height, self.width))
            filters[r] = tall.astype(np.float32), np.ascontiguousarray(wide.T.astype(np.float32))
        return filters

    def _gaussians(self, length: int, r: int) -> Floats:
        """The weights of pixels in each sample: a Gaussian about its middle, around the padded image's edge.

        Parameters
        ----------
        length : int
            Pixels along the side of the original image.
        r : int
            Every 2^r-th pixel of the padded image is there.

        Returns
        -------
        array of shape (samples, padded length / 2^r)
            Rows that add up to 1.
        """
        step, padded = 2**self.scales, self._padded(length) >> r
        middle = (step * (np.arange(self._samples(length)) + 1) + (step - 1) / 2) / 2**r
        away = np.arange(padded)[None, :] - middle[:, None]
        away -= padded * np.round(away / padded)
        weights = np.exp(-0.5 * (away / (_WIDTH * 2 ** (self.scales - 1 - r))) ** 2)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    @cached_property
    def _cosines(self) -> tuple[Floats, Floats]:
        """The lowest orthonormal cosines of a side's samples, one a row."""
        sides = []
        for length in (self.height, self.width):
            count = self._samples(length)
            orders = np.arange(min(self.cosines, count))[:, None]
            waves = np.cos(math.pi * orders * (np.arange(count) + 0.5)[None, :] / count) * math.sqrt(2 / count)
            waves[0] /= math.sqrt(2)
            sides.append(waves)
        return sides[0], sides[1]

    # ---- the transform ---------------------------------------------------------------------------------------------

    def map_batch(self, rows: Array) -> Array:
        """The features of a batch of images, each row divided by its norm, shape (batch, size)."""
        if is_gpu(rows):  # a GPU's Fourier transforms and short products may round an image by its place in the batch
            return array_on(self.map_batch(to_numpy(rows)), rows)
        xp = array_namespace(rows)
        pixels = xp.clip((rows - self.lowest) / (self.highest - self.lowest), 0.0, 1.0)
        shape = self._padded(self.height), self._padded(self.width)
        images = xp.reshape(
            xp.take(xp.astype(pixels, xp.float32), constant_on(self._mirrored, rows), axis=1), (-1, *shape)
        )
        parts = [self._features(self._sampled(images, 0)[:, None, None, ...])]
        for moduli, scale in self._moduli(images):
            parts.append(self._features(self._sampled(moduli, scale)[:, None, ...]))
            spectrum = _transformed(moduli)
            for coarser in range(scale + 1, self.scales):
                again = self._modulus(spectrum[:, :, None, ...], coarser, scale)
                parts.append(self._features(self._sampled(again, coarser)))
        features = xp.concat(parts, axis=1)
        norm = xp.sqrt(fold(features * features))
        return features / xp.where(norm > 0, norm, xp.ones_like(norm))[:, None]

    def _moduli(self, images: Array) -> list[tuple[Array, int]]:
        """The moduli of first order of images (batch, height, width), with the scale of each."""
        spectrum = _transformed(images)[:, None, ...]
        return [(self._modulus(spectrum, scale, 0), scale) for scale in range(self.scales)]

    def _modulus(self, spectrum: Array, scale: int, r: int) -> Array:
        """The size of what wavelets of a scale see, at every 2^scale-th pixel, from a spectrum at every 2^r-th.

        Parameters
        ----------
        spectrum : array of shape (batch, ..., height, width)
            Fourier transforms of images with every 2^r-th pixel.
        scale : int
            j, the scale of the wavelets.
        r : int
            The sampling of the images.

        Returns
        -------
        array of shape (batch, ..., angles, height, width)
            Moduli at every 2^j-th pixel.
        """
        xp = array_namespace(spectrum)
        wavelets, step = constant_on(self._wavelets[scale, r], spectrum), 2 ** (scale - r)
        height, width = (side // step for side in wavelets.shape[-2:])
        corners = [(height * a, width * b) for a in range(step) for b in range(step)]
        parts = [(..., slice(a, a + height), slice(b, b + width)) for a, b in corners]
        band = spectrum[parts[0]] * wavelets[parts[0]]
        for part in parts[1:]:  # sub-sampling an image folds its spectrum
            band += spectrum[part] * wavelets[part]
        signal = xp.fft.ifftn(band, axes=(-2, -1))
        real, imaginary = xp.real(signal), xp.imag(signal)
        return xp.sqrt(real * real + imaginary * imaginary) / step**2

    def _sampled(self, images: Array, r: int) -> Array:
        """Images with every 2^r-th pixel as samples of the coarsest step, by one matrix product along each side."""
        xp = array_namespace(images)
        tall, wide = (constant_on(side, images) for side in self._lowpass[r])
        return xp.matmul(xp.matmul(tall, images), wide)

    def _features(self, samples: Array) -> Array:
        """From samples (batch, group, channel, height, width): each group standardised, then its lowest cosines."""
        xp = array_namespace(samples)
        samples = xp.astype(samples, xp.float64)
        batch, groups, channels, height, width = samples.shape
        flat = xp.reshape(samples, (batch * groups, -1))
        flat = flat - (fold(flat + 0.0) / flat.shape[1])[:, None]
        spread = xp.sqrt(fold(flat * flat) / flat.shape[1])
        flat = flat / (spread + _FLOOR)[:, None]
        tall, wide = (constant_on(side, samples) for side in self._cosines)
        images = xp.reshape(flat, (batch, groups * channels, height, width))
        return xp.reshape(xp.matmul(xp.matmul(tall, images), xp.matrix_transpose(wide)), (batch, -1))


def _transformed(images: Array) -> Array:
    """The Fourier transform of images over their last two axes, in single precision."""
    xp = array_namespace(images)
    return xp.fft.fftn(xp.astype(images, xp.complex64), axes=(-2, -1))


def morlet(shape: tuple[int, int], j: int, turn: float, angles: int) -> Floats:
    """The Fourier transform of a Morlet wavelet of scale 2^j: a wave along `turn` under a Gaussian that is longer
    across it where there are many angles, less what gives it mean 0; around the edges of an image of this shape.

    Parameters
    ----------
    shape : tuple of two int
        Height and width of the image.
    j : int
        The scale, in powers of two of the pixels of this image.
    turn : float
        The direction in radians.
    angles : int
        Number of directions; the envelope is longer across the wave if there are many.

    >>> wavelet = morlet((16, 16), 0, 0.0, 4)
    >>> abs(float(wavelet[0, 0])) < 1e-12, int(np.argmax(wavelet)) < 16
    (True, True)
    """
    height, width = shape
    sigma, slant = _WIDTH * 2.0**j, 4 / angles
    y, x = np.meshgrid(np.arange(-2 * height, 3 * height), np.arange(-2 * width, 3 * width), indexing="ij")
    along = math.cos(turn) * x + math.sin(turn) * y
    across = -math.sin(turn) * x + math.cos(turn) * y
    envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2)) * slant / (2 * math.pi * sigma**2)
    wave: Any = envelope * np.exp(1j * _WAVE / 2.0**j * along)
    wave = wave - envelope * (wave.sum() / envelope.sum())
    around = wave.reshape(5, height, 5, width).sum(axis=(0, 2))
    return np.asarray(np.fft.fft2(around).real)
