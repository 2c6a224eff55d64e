"""Programs on a mesh of devices: the same numbers, and errors for meshes that are not ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import follmer
import together
from follmer import InputError
from follmer.tools.mesh import AXES, width
from follmer.tools.programs import compiled


@pytest.fixture
def target():
    return follmer.Target(lambda x: -0.5 * jnp.sum(x**2), like=jnp.zeros(2))


def test_training_and_draws_are_the_same_on_any_number_of_devices():
    """1, 2 and 4 devices, along paths and data; a row more or less than they can share."""
    told = together.run(
        """
        from jax.sharding import Mesh

        devices = np.asarray(jax.devices())
        alone = told(fitted(logistic(rows())))
        for mesh in (Mesh(devices[:2], ("paths",)), Mesh(devices.reshape(2, 2), ("paths", "data"))):
            print(np.abs(told(fitted(logistic(rows()), mesh=mesh), mesh) - alone).max())
        try:
            fitted(logistic(rows(63)), mesh=mesh)
        except follmer.InputError as error:
            print(error)
        """,
        num_devices=4,
    )
    # 40 steps of Adam amplify rounding (1e-7) a hundredfold at most; values reach 40.
    lines = told.splitlines()
    assert max(map(float, lines[:2])) < 1e-3
    assert lines[2] == "63 rows of data cannot be shared equally by 2 devices."


def test_a_training_step_sends_gradients_and_gathers_nothing():
    """What devices send grows with the drift, not with the number of paths."""
    told = together.run(
        """
        import re
        from follmer.fitting.training import _advance, _init

        for objective in ("det", "stl"):
            algorithm = follmer.NSFS(
                logistic(rows()),
                **{name: SETTINGS[name] for name in ("drift", "drift_options", "num_steps")},
                objective=objective,
                num_paths=64,
            )
            key = jax.random.key(0)
            with follmer.on_mesh("auto"):
                state = _init(algorithm, key)
                text = _advance.hlo(algorithm, state, key, np.asarray(2), 2)
            sent = re.findall(r" (all-[a-z]+|collective-[a-z]+|reduce-scatter)\\(", text)
            print(objective, *sorted(set(sent)))
        """,
        num_devices=4,
    )
    assert told.splitlines() == ["det all-reduce", "stl all-reduce"]


def test_parts_of_programs_are_the_same_on_four_devices():
    """Rows summed in chunks, functions mapped in turns, rows predicted, with nothing left over."""
    assert "fine" in together.run(
        """
        from jax.sharding import Mesh
        from follmer.targets.data import random_batch, sum_over_rows
        from follmer.tools.mesh import in_turns, spread_rows
        from follmer.tools.programs import compiled

        x = jnp.asarray(np.random.default_rng(0).normal(size=(40, 3)))

        @compiled
        def parts(x, key):
            def total(scale):
                return sum_over_rows(lambda rows: jnp.sin(scale * rows[:, 0]), x, 3)

            mapped = in_turns(lambda row: jnp.cumsum(row), x[:37], 5)
            return jax.value_and_grad(total)(2.0), mapped, random_batch(key, x, 40, 7)

        key = jax.random.key(0)
        alone = parts(x, key)
        devices = np.asarray(jax.devices())
        for mesh in (Mesh(devices, ("data",)), Mesh(devices.reshape(2, 2), ("paths", "data"))):
            with follmer.on_mesh(mesh):
                spread_rows(x)
                spread = parts(x, key)
                for one, other in zip(*map(jax.tree.leaves, (alone, spread)), strict=True):
                    assert other.devices() == {devices[0]}
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        print("fine")
        """,
        num_devices=4,
    )


def test_what_a_program_returns_is_local_and_fits_the_next(target):
    calls = []

    @compiled
    def doubled(x):
        calls.append(x.shape)
        return 2 * x

    with follmer.on_mesh("auto"):
        assert width(*AXES) == jax.device_count()
        found = doubled(doubled(np.ones(3, np.float32)))
    np.testing.assert_array_equal(found, np.full(3, 4.0))
    assert width(*AXES) == 1
    # Programs of a mesh are its own.
    doubled(np.ones(3, np.float32))
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ("all", "not a mesh of devices"),
        (4, "not a mesh of devices"),
        (lambda: Mesh(np.asarray(jax.devices()[:1]), ("path",)), "an axis 'path'"),
    ],
)
def test_other_meshes_are_refused(target, key, mesh, message):
    mesh = mesh() if callable(mesh) else mesh
    with pytest.raises(InputError, match=message):
        follmer.fit(target, key=key, mesh=mesh, progress=False)


def test_rows_are_shared_along_data_only(key):
    own = follmer.Target(
        log_prior=follmer.priors.Normal(),
        log_likelihood=lambda w, batch: -0.5 * (batch - w[0]) ** 2,
        data=np.ones(4, np.float32),
        like=jnp.zeros(1),
    )
    with pytest.raises(InputError, match='without an axis "data"'):
        own.joined("auto")
    joined = own.joined(Mesh(np.asarray(jax.devices()[:1]), ("data",)))
    assert joined.num_data == 4


def test_cores_are_devices_if_asked_for_in_time():
    told = together.run(
        """
        follmer.use_cores(3)
        print(jax.device_count())
        follmer.use_cores(3)
        try:
            follmer.use_cores(2)
        except follmer.InputError as error:
            print(error)
        """
    )
    assert told.startswith("3\nJAX has started with 3 host devices; 2 cannot be had any more.")


@pytest.mark.slow
def test_a_whole_fit_is_the_same_on_four_devices():
    """The survey's climbs and chains, tempered particles, an ensemble of networks."""
    assert "fine" in together.run(
        """
        import equinox as eqx

        key = jax.random.key(0)
        mixture = follmer.Target(
            lambda x: jnp.logaddexp(-0.5 * jnp.sum((x - 3) ** 2), -0.5 * jnp.sum((x + 3) ** 2)),
            like=jnp.zeros(2),
        )
        net = eqx.nn.MLP(2, 1, 4, 1, key=key)
        data = rows()
        network = follmer.from_network(net, data=(data["x"], data["y"]), likelihood="normal")
        for target, options in (
            (logistic(rows()), {}),
            (mixture, {"precondition": "explore", "num_iterations": 50, "num_steps": 8}),
            (network, {"precondition": "ensemble", "num_iterations": 40}),
        ):
            found = []
            for mesh in (None, "auto"):
                one = follmer.fit(target, key=key, progress=False, mesh=mesh, **options)
                if target is network:
                    found.append(one.predict(data["x"][:6], key=key, mesh=mesh).mean)
                else:
                    found.append(one.diagnostics(key=key, num_samples=4096).log_evidence)
            # Chains may part where rounding decides; what they say stays within their noise.
            np.testing.assert_allclose(*found, atol=0.05)
        print("fine")
        """,
        num_devices=4,
    )
