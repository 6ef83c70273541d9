"""Training steps of Keras under a budget train to the same weights in less memory."""

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import lowtide.tensorflow
from lowtide.core.errors import UnsupportedError, UsageError

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="there is no package tensorflow"),
    pytest.mark.filterwarnings("ignore:(?!lowtide)"),  # TensorFlow's own
]
_DRAWN = np.random.default_rng(0)
BATCHES = [(_DRAWN.random((32, 16, 16, 3), dtype=np.float32), _DRAWN.integers(0, 4, 32)) for _ in range(10)]


def _network() -> Any:
    """Return convolutions with batch norms, dropout and a penalty on weights, the same every time."""
    import keras

    keras.utils.set_random_seed(0)
    layers: list[Any] = [keras.layers.Input((16, 16, 3))]
    for _ in range(4):
        layers += [keras.layers.Conv2D(8, 3, padding="same", kernel_regularizer="l2")]
        layers += [keras.layers.BatchNormalization(), keras.layers.ReLU(), keras.layers.Dropout(0.1)]
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(4)])


def _optimizer_and_loss() -> tuple[Any, Any]:
    import keras

    return keras.optimizers.SGD(0.1, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def test_ten_steps_within_a_budget_give_the_weights_of_plain_keras_in_less_measured_memory() -> None:
    plain, ours = _network(), _network()
    optimizer, loss = _optimizer_and_loss()
    plain.compile(optimizer=optimizer, loss=loss)
    step = lowtide.tensorflow.training_step(ours, *_optimizer_and_loss(), budget="60%")
    for x, y in BATCHES:
        expected = plain.train_on_batch(x, y)
        np.testing.assert_allclose(float(step(x, y)), expected, rtol=1e-5)
    for one, other in zip(plain.variables, ours.variables, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-5, atol=1e-6)
    assert step.is_planned
    assert step.result.reruns
    measured = step.measure()
    assert measured.outputs_equal
    assert measured.original_bytes is not None
    assert measured.after_bytes < 0.7 * measured.original_bytes
    assert step.resident_bytes() < step.resident_bytes(planned=False)


def test_a_step_that_keeps_the_budget_of_itself_stays_as_it_was_traced() -> None:
    step = lowtide.tensorflow.training_step(_network(), *_optimizer_and_loss(), budget="120%")
    first = float(step(*BATCHES[0]))
    assert not step.is_planned
    assert float(step(*BATCHES[0])) != first


def test_a_budget_out_of_reach_is_one_warning_with_the_least_that_was_found() -> None:
    step = lowtide.tensorflow.training_step(_network(), *_optimizer_and_loss(), budget="2%")
    with pytest.warns(UserWarning, match=r"misses its budget and runs with the lowest peak found, .*B") as caught:
        step(*BATCHES[0])
    assert [str(each.message) for each in caught if "lowtide" in str(each.message)] == [str(caught[0].message)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(*BATCHES[1])  # planned already


def test_what_is_no_model_optimizer_or_loss_is_one_line() -> None:
    optimizer, loss = _optimizer_and_loss()
    network = _network()
    training_step = lowtide.tensorflow.training_step
    with pytest.raises(UsageError, match="not called yet"):
        training_step(network, optimizer, loss).result  # noqa: B018
    with pytest.raises(UsageError, match="the model is of type int"):
        training_step(3, optimizer, loss)(*BATCHES[0])
    with pytest.raises(UsageError, match="the optimizer is of type str"):
        training_step(network, "adam", loss)(*BATCHES[0])
    with pytest.raises(UsageError, match="'unheard' is not a loss"):
        training_step(network, optimizer, "unheard")(*BATCHES[0])
    with pytest.raises(UnsupportedError, match="cannot trace the training step"):
        training_step(network, optimizer, loss)(BATCHES[0][0][:, :4, :4, 0], BATCHES[0][1])
