"""One training step of Keras as a traced function: forward pass, loss, gradients, and what the optimizer does."""

from typing import Any

from lowtide.core.errors import UnsupportedError, UsageError, one_line
from lowtide.frameworks.tensorflow.running.session import tensorflow


def traced_step(model: Any, optimizer: Any, loss: Any, batch: Any) -> Any:
    """Return a ConcreteFunction of (x, y) that trains on batches of one form and returns the loss.

    Raises UsageError for what is no model, optimizer or loss of Keras, UnsupportedError for what TensorFlow cannot
    trace.
    """
    tf = tensorflow()
    for name, value, needed in (("model", model, "trainable_variables"), ("optimizer", optimizer, "apply_gradients")):
        if not hasattr(value, needed):
            raise UsageError(f"the {name} is of type {type(value).__name__}, which is none of Keras")
    loss_of = _loss_function(tf, loss)
    if not model.built:
        model(batch[0])
    optimizer.build(model.trainable_variables)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss_of(y, model(x, training=True))
            if value.shape.rank:
                value = tf.reduce_mean(value)
            if model.losses:
                value += tf.add_n(model.losses)
            scaled = optimizer.scale_loss(value)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
        return value

    def spec(tensor: Any) -> Any:
        return tf.TensorSpec(tensor.shape, tensor.dtype)

    specs = tf.nest.map_structure(spec, batch)
    try:
        return tf.function(step).get_concrete_function(*specs)
    except Exception as error:  # TensorFlow and Keras raise several types of their own
        raise UnsupportedError(f"TensorFlow cannot trace the training step: {one_line(error)}") from None


def _loss_function(tf: Any, loss: Any) -> Any:
    try:
        found = tf.keras.losses.get(loss)
    except (ValueError, TypeError):
        found = None
    if not callable(found):
        raise UsageError(f"{loss!r} is no loss; give one of Keras, its name, or a function of (labels, predictions)")
    return found
