"""The functions of Caffe2's memonger, with its arguments and results, on top of `sharing`."""
