import jax.numpy as jnp
import numpy as np
import pytest

from training import geometry


def test_overlaps_are_those_of_pairs():
    x = jnp.array([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    np.testing.assert_allclose(geometry.overlaps(x), [0.6, -1.0, -0.6], atol=1e-6)


def test_effective_rank_counts_directions():
    eye = np.eye(4)
    cases = jnp.array([eye, eye[[0, 0, 1, 1]], eye[[2, 2, 2, 2]], -eye[[0, 1, 0, 1]]])
    np.testing.assert_allclose(geometry.effective_rank(cases), [4, 2, 1, 2], rtol=1e-4)
    uneven = geometry.effective_rank(jnp.array(eye[[0, 0, 0, 1]]))
    assert uneven == pytest.approx(np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25)), rel=1e-4)


def test_summary_of_merged_and_of_antipodal_tokens():
    eye, signs = np.eye(3), np.array([[1], [1], [-1]])
    found = geometry.summary(jnp.array([eye[[0, 0, 0]], signs * eye[[1, 1, 1]]]))
    assert found["merged"] == pytest.approx(4 / 6)
    assert found["antipodal"] == pytest.approx(2 / 6)
    assert found["mean_overlap"] == pytest.approx((3 + 1 - 2) / 6)
    assert found["rank"] == pytest.approx(1, abs=1e-4)
    # means e1 and e2/3: their squared distance to the middle
    assert found["between"] == pytest.approx(0.5**2 + (1 / 6) ** 2)
    histogram = np.asarray(found["histogram"])
    assert histogram[0] == pytest.approx(2 / 6)
    assert histogram[-1] == pytest.approx(4 / 6)
    assert len(histogram) == geometry.BINS
