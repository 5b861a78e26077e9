"""NumPy's `numpy._core.tests.test_ufunc`, through the service."""

from numpy_suite.borrowed import borrow

globals().update(borrow("numpy._core.tests.test_ufunc"))
