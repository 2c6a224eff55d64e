"""The estimators among scikit-learn's tools: tables, folds, pipelines, files, and their answers."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import follmer
from compilations import compiled
from follmer import FileError, InputError, likelihoods, priors
from follmer.integrations.tables import as_form, log_mean, log_shares, scaling_of, table_target
from follmer.sklearn import FollmerClassifier, FollmerRegressor, load

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2)) * [1.0, 50.0] + [0.0, 300.0]
Y = 10.0 + 4.0 * X[:, 0] + RNG.normal(size=40)
LABELS = np.where(X[:, 0] + 0.3 * RNG.normal(size=40) > 0, "yes", "no")
BRIEF = {"precondition": "ensemble", "num_iterations": 200, "audit": False, "check": False}


def regressor(**options):
    small = {"hidden_layer_sizes": (4,), "num_draws": 64, "fit_options": BRIEF, "random_state": 0}
    return FollmerRegressor(**{**small, **options})


def classifier(**options):
    small = {"hidden_layer_sizes": (4,), "num_draws": 64, "fit_options": BRIEF, "random_state": 0}
    return FollmerClassifier(**{**small, **options})


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return regressor().fit(X, Y)


@pytest.fixture(scope="module")
def sorted_out():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return classifier().fit(X, LABELS)


@pytest.fixture(scope="module")
def linear():
    """Ordinary Bayesian regression with a known noise: its posterior is known in closed form."""
    noise = follmer.likelihoods.Normal(0.5)
    return FollmerRegressor("linear", likelihood=noise, num_draws=4096, random_state=0).fit(X, Y)


def test_a_linear_model_predicts_as_the_closed_form(linear):
    assert linear.verdict_ is follmer.Verdict.TRUSTWORTHY
    x, y = scaling_of(X).scaled(X), scaling_of(Y).scaled(Y)
    design = np.column_stack([x, np.ones(len(x))])
    covariance = np.linalg.inv(design.T @ design / 0.25 + np.eye(3))
    mean = design @ (covariance @ design.T @ y / 0.25)
    variance = np.einsum("ij,jk,ik->i", design, covariance, design)
    found, sd = linear.predict(X, return_std=True)
    # Five standard errors of a mean of 4096 draws, and of a standard deviation.
    unit, error = Y.std(), 5.0 / np.sqrt(4096)
    assert np.all(np.abs(found - Y.mean() - unit * mean) < error * unit * np.sqrt(variance))
    np.testing.assert_allclose(sd, unit * np.sqrt(0.25 + variance), rtol=error)


def test_intervals_densities_and_draws_belong_to_one_distribution(linear):
    mean, sd = linear.predict(X, return_std=True)
    low, high = linear.predict_interval(X, 0.9).T
    # With a known noise the predictive is normal, up to what 4096 draws say of it.
    np.testing.assert_allclose(low, mean - 1.645 * sd, atol=0.05 * Y.std())
    np.testing.assert_allclose(high, mean + 1.645 * sd, atol=0.05 * Y.std())
    density = -0.5 * ((Y - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(linear.log_predictive_density(X, Y), density, atol=0.05)
    draws = linear.sample_y(X, 400)
    assert draws.shape == (40, 400)
    # Five standard errors of 400 draws.
    assert np.all(np.abs(draws.mean(axis=1) - mean) < 5 * sd / 20)
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=5 / np.sqrt(800))
    assert np.array_equal(linear.sample_y(X, 2), linear.sample_y(X, 2))
    assert not np.array_equal(linear.sample_y(X, 2), linear.sample_y(X, 2, random_state=1))


def test_counts_have_whole_intervals_and_a_mean_of_their_own():
    rate = np.exp(1.0 + 0.8 * X[:, 0])
    counts = np.random.default_rng(1).poisson(rate)
    model = FollmerRegressor("linear", likelihood="poisson", random_state=0).fit(X, counts)
    assert model.verdict_.is_usable
    ends = model.predict_interval(X, 0.8)
    assert np.array_equal(ends, np.round(ends))
    # A slope of .8 ± .1: the truth is within a factor of 1.5 at all but the farthest rows.
    ratio = np.log(model.predict(X) / rate)
    assert np.mean(np.abs(ratio)) < 0.4
    draws = model.sample_y(X[:3], 5)
    assert np.array_equal(draws, np.round(draws))
    assert draws.min() >= 0


@pytest.mark.parametrize(
    ("scale", "prior"), [(None, priors.UnknownScale(1.25)), (0.5, priors.Normal(0.5))]
)
def test_weights_of_classes_have_the_scale_that_is_given_or_one_that_is_learned(scale, prior):
    form = as_form("linear", (), "relu", scale)
    target = table_target(X, (Y > 10).astype(float), form, likelihoods.Bernoulli(), np.zeros(1))
    x = jnp.array([0.3, -2.0, 1.0])
    np.testing.assert_allclose(target.log_prior_density(x), prior(target.constrain(x)), rtol=1e-6)


def test_a_network_learns_what_is_there(fitted, sorted_out):
    # The noise's share of the variance is 1/17, and one label in ten is beyond the border.
    assert fitted.score(X, Y) > 0.8
    assert sorted_out.score(X, LABELS) > 0.8


def test_probabilities_are_those_of_the_classes(sorted_out):
    assert sorted_out.classes_.tolist() == ["no", "yes"]
    found = sorted_out.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(sorted_out.predict_log_proba(X), np.log(found))
    assert np.array_equal(sorted_out.predict(X), np.where(found[:, 1] > 0.5, "yes", "no"))
    density = sorted_out.log_predictive_density(X, LABELS)
    # Single precision.
    np.testing.assert_allclose(-density.mean(), log_loss(LABELS, found), rtol=1e-5)
    assert set(sorted_out.sample_y(X, 3).ravel()) == {"no", "yes"}


def test_seeds_repeat_and_generators_are_taken(fitted):
    again = regressor().fit(X, Y)
    assert np.array_equal(again.predict(X), fitted.predict(X))
    other = regressor(random_state=np.random.RandomState(3)).fit(X, Y)
    assert not np.array_equal(other.predict(X), fitted.predict(X))


def test_refits_of_the_same_shape_compile_nothing(fitted):
    def refit():
        return regressor(random_state=1, prior_scale=0.5).fit(X[::-1] * 2.0, Y**2).predict(X)

    assert compiled(refit) == 0


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_tables_keep_the_names_of_their_columns(frame, fitted):
    table = frame({"height": X[:, 0], "income": X[:, 1]})
    model = regressor().fit(table, Y)
    assert model.feature_names_in_.tolist() == ["height", "income"]
    np.testing.assert_array_equal(model.predict(table), fitted.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame({"income": X[:, 1], "height": X[:, 0]}))
    kind = "pandas" if frame is pd.DataFrame else "polars"
    chain = make_pipeline(StandardScaler(), regressor()).set_output(transform=kind)
    chain.fit(table, Y)
    assert chain[-1].feature_names_in_.tolist() == ["height", "income"]


def test_it_works_among_the_tools_of_scikit_learn():
    chain = make_pipeline(StandardScaler(), classifier())
    scores = cross_val_score(chain, X, LABELS, cv=2, scoring="neg_log_loss")
    assert np.isfinite(scores).all()
    search = GridSearchCV(regressor(), {"prior_scale": [1e-3, 1.0]}, cv=2).fit(X, Y)
    # Weights that are held near 0 predict the mean.
    assert search.best_params_ == {"prior_scale": 1.0}
    copy = clone(search.best_estimator_)
    assert copy.get_params() == search.best_estimator_.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)


def test_calibration_can_be_looked_at(sorted_out):
    mpl.use("Agg")
    shown = CalibrationDisplay.from_estimator(sorted_out, X, LABELS, n_bins=3)
    assert len(shown.prob_true) >= 2


@pytest.mark.parametrize("kind", ["fitted", "sorted_out", "linear"])
def test_a_pickle_predicts_the_same(kind, request):
    model = request.getfixturevalue(kind)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict(X), model.predict(X))
    assert copy.verdict_ == model.verdict_


@pytest.mark.parametrize("kind", ["fitted", "sorted_out"])
def test_a_file_predicts_the_same(kind, request, tmp_path):
    model = request.getfixturevalue(kind)
    model.save(tmp_path / "model.follmer")
    for copy in (load(tmp_path / "model.follmer"), type(model).load(tmp_path / "model.follmer")):
        assert type(copy) is type(model)
        assert copy.get_params() == model.get_params()
        assert copy.n_features_in_ == 2
        assert np.array_equal(copy.predict(X), model.predict(X))
        assert np.array_equal(copy.sample_y(X, 2), model.sample_y(X, 2))


def test_a_file_keeps_names_and_labels_of_any_kind(tmp_path):
    table = pd.DataFrame(X, columns=["a", "b"])
    for labels in (LABELS.astype(object), LABELS == "yes", pd.Series(LABELS, dtype="category")):
        model = classifier().fit(table, labels)
        model.save(tmp_path / "model.follmer")
        copy = load(tmp_path / "model.follmer")
        assert copy.feature_names_in_.tolist() == ["a", "b"]
        assert copy.classes_.dtype == model.classes_.dtype
        assert np.array_equal(copy.predict(table), model.predict(table))


def test_files_that_cannot_be_are_told(fitted, linear, tmp_path):
    path = tmp_path / "model.follmer"
    with pytest.raises(NotFittedError):
        regressor().save(path)
    with pytest.raises(InputError, match="likelihood"):
        linear.save(path)
    assert not list(tmp_path.iterdir())
    fitted.save(path)
    with pytest.raises(InputError, match="holds a FollmerRegressor"):
        FollmerClassifier.load(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FileError, match="cut short"):
        load(path)
    fitted.posterior_.save(path)
    with pytest.raises(FileError, match="holds a follmer posterior, not a fitted estimator"):
        load(path)
    with pytest.raises(FileError, match="no file"):
        load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "tree"}, "model='tree'"),
        ({"activation": "rleu"}, "'relu'"),
        ({"hidden_layer_sizes": ()}, "model='linear'"),
        ({"hidden_layer_sizes": (4, 0)}, "hidden_layer_sizes"),
        ({"prior_scale": 0.0}, "prior_scale"),
        ({"prior_scale": "wide"}, "prior_scale"),
        ({"prior_scale": None}, "prior_scale"),
        ({"likelihood": "gauss"}, "likelihood='gauss'"),
        ({"num_draws": 0}, "num_draws"),
        ({"fit_options": {"steps": 3}}, "'steps' is not an option"),
        ({"fit_options": {"key": 3}}, "random_state= seeds it"),
        ({"fit_options": [3]}, "fit_options is"),
    ],
)
def test_parameters_that_cannot_be_are_told_by_fit(options, words):
    with pytest.raises(InputError, match=words):
        regressor(**options).fit(X, Y)


def test_data_that_cannot_be_are_told(fitted, sorted_out):
    with pytest.raises(ValueError, match="inconsistent"):
        regressor().fit(X, Y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(np.where(X > 300, np.nan, X), Y)
    with pytest.raises(TypeError, match="dense data is required"):
        regressor().fit(sparse.csr_array(X), Y)
    with pytest.raises(InputError, match="one class only"):
        classifier().fit(X, np.full(40, "yes"))
    with pytest.raises(ValueError, match="continuous"):
        classifier().fit(X, Y)
    with pytest.raises(InputError, match="not a count"):
        regressor(likelihood="poisson").fit(X, Y)
    with pytest.raises(TypeError, match="sample_weight"):
        regressor().fit(X, Y, sample_weight=np.ones(40))
    with pytest.raises(ValueError, match="2 features"):
        fitted.predict(X[:, :1])
    with pytest.raises(InputError, match="level"):
        fitted.predict_interval(X, 95)
    with pytest.raises(ValueError, match="inconsistent"):
        fitted.log_predictive_density(X, Y[:3])
    with pytest.raises(InputError, match="'maybe', which fit has not seen"):
        sorted_out.log_predictive_density(X[:1], ["maybe"])
    with pytest.raises(InputError, match="n_samples"):
        fitted.sample_y(X, 0)


def test_what_is_not_to_be_used_is_told():
    with pytest.warns(ConvergenceWarning, match="do not use"):
        regressor().fit(X, Y)


def test_columns_are_scaled_and_constant_ones_left():
    table = np.column_stack([X, np.full(40, 0.1), np.full(40, -1e9)])
    found = scaling_of(table)
    scaled = found.scaled(table)
    np.testing.assert_allclose(scaled[:, :2].std(axis=0), 1.0)
    assert found.unit[2:].tolist() == [1.0, 1.0]
    np.testing.assert_allclose(scaled[:, 2:], 0.0, atol=1e-6)


def test_outputs_start_at_what_is_seen_on_average():
    (logit,) = log_shares(np.array([30, 10]))
    np.testing.assert_allclose(logit, np.log(1 / 3))
    shares = jax.nn.softmax(log_shares(np.array([5, 3, 2])))
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], rtol=1e-5)
    np.testing.assert_allclose(log_mean(np.array([1, 3])), np.log(2.0))
    assert np.isfinite(log_mean(np.zeros(4))).all()


@pytest.mark.parametrize("noise", ["normal_per_row", "student_t_per_row"])
def test_a_noise_of_each_row_has_an_output_of_its_own(noise):
    found = regressor(likelihood=noise).fit(X, Y)
    assert len(found.offset_) == 2
    own = {"normal_per_row": "Normal", "student_t_per_row": "StudentT"}[noise]
    same = getattr(follmer.likelihoods, own)(**{"sd" if own == "Normal" else "scale": "per_row"})
    again = regressor(likelihood=same).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
