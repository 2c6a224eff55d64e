import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from follmer import InputError
from follmer.targets.likelihoods import (
    LIKELIHOODS,
    AbstractLikelihood,
    Bernoulli,
    Categorical,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    as_likelihood,
)

LOGITS = np.array([-1.3, 0.2, 2.5])


def test_a_normal_likelihood_sums_the_outputs_of_a_row(x64):
    outputs, y = np.arange(6.0).reshape(3, 2), np.ones((3, 2))
    expected = stats.norm.logpdf(y, outputs, [0.5, 2.0]).sum(1)
    found = Normal(np.array([0.5, 2.0])).log_prob(outputs, y)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "reference"),
    [
        (Normal(0.5), stats.norm(LOGITS, 0.5)),
        (Bernoulli(), stats.bernoulli(1 / (1 + np.exp(-LOGITS)))),
        (Poisson(), stats.poisson(np.exp(LOGITS))),
        (StudentT(5.0, 0.7), stats.t(5.0, LOGITS, 0.7)),
        # r = 1/overdispersion² failures, and p = r/(r + mean).
        (NegativeBinomial(0.5), stats.nbinom(4.0, 4.0 / (4.0 + np.exp(LOGITS)))),
        (NegativeBinomial(0.2), stats.nbinom(25.0, 25.0 / (25.0 + np.exp(LOGITS)))),
    ],
    ids=["normal", "bernoulli", "poisson", "student_t", "negative_binomial", "large_size"],
)
def test_a_likelihood_is_the_distribution_it_is_named_after(likelihood, reference, x64):
    y = np.array([0.0, 1.0, 1.0])
    continuous = isinstance(likelihood, Normal | StudentT)
    log_prob = reference.logpdf if continuous else reference.logpmf
    # Stirling's series, for r of 20 and more, is exact to about 1/(360 r³).
    large = isinstance(likelihood, NegativeBinomial) and likelihood.overdispersion < 0.22
    rtol = 1e-6 if large else 1e-10
    np.testing.assert_allclose(likelihood.log_prob(LOGITS, y), log_prob(y), rtol=rtol)
    np.testing.assert_allclose(likelihood.mean(jnp.asarray(LOGITS)), reference.mean(), rtol=1e-10)
    np.testing.assert_allclose(likelihood.variance(jnp.asarray(LOGITS)), reference.var(), rtol=1e-9)
    if likelihood.cdf(LOGITS, y) is not None:
        points = np.array([-0.5, 2.0, 9.5])
        np.testing.assert_allclose(likelihood.cdf(LOGITS, points), reference.cdf(points), rtol=1e-7)


def test_a_categorical_likelihood_is_the_softmax(x64):
    outputs, y = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]]), np.array([2, 0])
    p = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    np.testing.assert_allclose(
        Categorical().log_prob(jnp.asarray(outputs), jnp.asarray(y)), np.log(p[[0, 1], y])
    )
    np.testing.assert_allclose(Categorical().probabilities(outputs), p)
    np.testing.assert_allclose(Categorical().variance(outputs), p * (1 - p))


def test_class_probabilities_are_those_of_the_likelihood(x64):
    probabilities = Bernoulli().probabilities(LOGITS)
    np.testing.assert_allclose(jnp.sum(probabilities, -1), 1.0)
    for label in (0, 1):
        log_prob = Bernoulli().log_prob(LOGITS, np.full(3, label))
        np.testing.assert_allclose(np.log(probabilities[:, label]), log_prob)


@pytest.mark.parametrize("outputs", [-200.0, 200.0])
@pytest.mark.parametrize(
    "likelihood",
    [Bernoulli(), Poisson(), NegativeBinomial(0.5)],
    ids=["bernoulli", "poisson", "negative_binomial"],
)
def test_extreme_logits_leave_gradients_numbers(likelihood, outputs):
    for y in (0.0, 1.0):
        gradient = jax.grad(lambda o, y=y: likelihood.log_prob(o[None], jnp.array([y]))[0])(
            jnp.float32(outputs)
        )
        assert not jnp.isnan(gradient)


def test_the_prior_of_inferred_noise_is_half_normal(x64):
    expected = stats.halfnorm(scale=0.7).logpdf(1.1)
    np.testing.assert_allclose(Normal(sd_scale=0.7).log_prior(1.1), expected, rtol=1e-12)


def test_inferred_noise_has_no_value_by_itself():
    with pytest.raises(InputError, match="inferred"):
        Normal().log_prob(LOGITS, LOGITS)


@pytest.mark.parametrize("sd", [0.0, -1.0, np.nan, "known", np.array([1.0, 0.0])])
def test_a_noise_must_be_positive(sd):
    with pytest.raises(InputError, match="sd must be"):
        Normal(sd)


@pytest.mark.parametrize(
    ("likelihood", "y", "shape", "message"),
    [
        (Bernoulli(), [0, 1, 2], (3,), "holds 2 in row 2"),
        (Bernoulli(), [1, -1, 1], (3,), r"-1 in row 1.*\n.*y \+ 1"),
        (Bernoulli(), [[0, 1], [0, 3]], (2, 2), "row 1, column 1"),
        (Categorical(), [0, 1, 3], (3, 3), "3 in row 2.*labels 0, …, 2"),
        (Categorical(), [0.5, 1, 2], (3, 3), "0.5 in row 0"),
        (Categorical(), np.eye(3), (3, 3), "one-hot"),
        (Categorical(), [0, 1, 1], (3,), "one logit per class"),
        (Poisson(), [0, 1.5, 2], (3,), "1.5 in row 1.*a count"),
        (Poisson(), [0, -1, 2], (3,), "-1 in row 1"),
        (Normal(1.0), np.zeros((3, 2)), (3,), r"shape \(3, 2\).*\(3,\)"),
    ],
)
def test_observations_that_cannot_be_are_named(likelihood, y, shape, message):
    with pytest.raises(InputError, match=f"(?s){message}"):
        likelihood.observed(np.asarray(y), shape)


def test_a_single_column_of_y_is_one_number_per_row():
    for likelihood, shape in [(Normal(1.0), (3,)), (Bernoulli(), (3,)), (Categorical(), (3, 2))]:
        observed = likelihood.observed(np.array([[0.0], [1.0], [1.0]]), shape)
        np.testing.assert_array_equal(observed, [0, 1, 1])


def test_likelihoods_go_by_name_or_by_themselves():
    own = Normal(0.3)
    assert as_likelihood(own) is own
    assert all(isinstance(as_likelihood(name), AbstractLikelihood) for name in LIKELIHOODS)
    with pytest.raises(InputError, match="'poisson'"):
        as_likelihood("poison")
    with pytest.raises(InputError, match="calling it"):
        as_likelihood(Bernoulli)


def test_noise_of_each_row_is_the_softplus_of_a_second_output(x64):
    outputs, y = np.array([[0.5, -1.0], [2.0, 3.0]]), np.array([0.0, 1.0])
    noise = Normal(sd="per_row", sd_floor=0.1)
    sd = 0.1 + np.log1p(np.exp(outputs[:, 1]))
    reference = stats.norm(outputs[:, 0], sd)
    np.testing.assert_allclose(noise.log_prob(jnp.asarray(outputs), y), reference.logpdf(y))
    np.testing.assert_allclose(noise.mean(outputs), outputs[:, 0])
    np.testing.assert_allclose(noise.variance(jnp.asarray(outputs)), sd**2)
    np.testing.assert_allclose(noise.cdf(outputs, y), reference.cdf(y))


def test_noise_of_each_row_takes_several_columns(x64):
    outputs, y = np.array([[0.5, 1.5, -1.0, 2.0]]), np.array([[0.0, 1.0]])
    sd = 0.1 + np.log1p(np.exp(outputs[:, 2:]))
    expected = stats.norm.logpdf(y, outputs[:, :2], sd).sum(1)
    noise = Normal(sd="per_row", sd_floor=0.1)
    np.testing.assert_allclose(noise.log_prob(jnp.asarray(outputs), y), expected)
    assert noise.observed(y, (1, 4)).shape == (1, 2)


@pytest.mark.parametrize("df", [4.0, 5.0])
def test_t_noise_has_the_distribution_function_of_t_far_into_its_tails(x64, df):
    y = np.concatenate([-np.logspace(6, -6, 13), [0.0], np.logspace(-6, 6, 13)])
    np.testing.assert_allclose(
        StudentT(df, 2.0).cdf(1.0, y), stats.t.cdf(y, df, 1.0, 2.0), rtol=1e-9
    )


def test_t_noise_of_each_row_has_a_scale_of_its_own(x64):
    outputs, y = np.array([[0.5, -1.0], [2.0, 3.0]]), np.array([0.0, 4.0])
    noise = StudentT(5.0, "per_row", scale_floor=0.1)
    reference = stats.t(5.0, outputs[:, 0], 0.1 + np.log1p(np.exp(outputs[:, 1])))
    np.testing.assert_allclose(noise.log_prob(jnp.asarray(outputs), y), reference.logpdf(y))
    np.testing.assert_allclose(noise.mean(outputs), outputs[:, 0])
    np.testing.assert_allclose(noise.variance(jnp.asarray(outputs)), reference.var())
    np.testing.assert_allclose(noise.cdf(outputs, y), reference.cdf(y))
    assert noise.unknown is None


@pytest.mark.parametrize("noise", [Normal(sd="per_row"), StudentT(scale="per_row")])
@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 3)])
def test_noise_of_each_row_asks_for_two_outputs(noise, shape):
    with pytest.raises(InputError, match="means and then as many widths"):
        noise.observed(np.zeros(3), shape)


@pytest.mark.parametrize("make", [lambda: Normal(sd="row"), lambda: StudentT(scale="row")])
def test_a_width_that_is_a_word_is_per_row(make):
    with pytest.raises(InputError, match="'per_row' or None, not 'row'"):
        make()


def test_the_floor_of_the_noise_is_what_rounding_does_to_grades():
    grades = np.repeat([3.0, 4.0, 5.0, 6.0], 25)
    assert float(Normal(sd="per_row").for_data(grades).sd_floor) == pytest.approx(12**-0.5)
    noise = StudentT(5.0, "per_row").for_data(grades)
    assert float(noise.scale_floor) == pytest.approx(12**-0.5)
    assert noise.df == 5.0


def test_the_floor_of_the_noise_is_small_beside_continuous_data():
    y = np.random.default_rng(0).normal(size=200)
    floor = float(Normal(sd="per_row").for_data(y).sd_floor)
    assert floor == pytest.approx(1e-3 * y.std(), rel=1e-5)


def test_a_floor_that_was_given_stays():
    assert Normal(sd="per_row", sd_floor=0.3).for_data(np.zeros(5)).sd_floor == 0.3


@pytest.mark.parametrize("overdispersion", [1e-4, 0.05, 0.3, 2.0])
def test_counts_keep_their_precision_in_single_floats(overdispersion):
    y, outputs = np.array([0.0, 3.0, 120.0]), np.array([1.0, 1.0, 4.0], np.float32)
    size = overdispersion**-2.0
    expected = stats.nbinom.logpmf(y, size, size / (size + np.exp(outputs.astype(float))))
    found = NegativeBinomial(overdispersion).log_prob(jnp.asarray(outputs), jnp.asarray(y))
    # Logarithms of factorials of size 300, to single precision.
    np.testing.assert_allclose(found, expected, atol=3e-4)


def test_t_noise_without_a_variance_is_refused():
    with pytest.raises(InputError, match="no variance"):
        StudentT(df=2.0)


@pytest.mark.parametrize(
    ("likelihood", "name"),
    [(Normal(), "noise_sd"), (StudentT(), "noise_scale"), (NegativeBinomial(), "overdispersion")],
)
def test_an_unknown_of_a_likelihood_is_named_and_can_be_given(likelihood, name):
    assert likelihood.unknown == name
    assert likelihood.given(0.4).unknown is None
    with pytest.raises(InputError, match="to be inferred"):
        likelihood.log_prob(jnp.zeros(2), jnp.zeros(2))
