"""The functions of Caffe2's memonger on nets, done by lowtide's sharing and orders; `lowtide.caffe2.memonger`."""
