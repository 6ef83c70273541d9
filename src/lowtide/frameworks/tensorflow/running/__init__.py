"""TensorFlow itself: sessions that run a graph as it stands, and what they say of its memory."""
