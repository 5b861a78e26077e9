"""NumPy's `numpy.fft.tests.test_pocketfft`, through the service."""

from numpy_suite.borrowed import borrow

globals().update(borrow("numpy.fft.tests.test_pocketfft"))
