module @jit_conditional attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<i1>, %arg1: tensor<32x32xf32>) -> (tensor<32x32xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convert %arg0 : (tensor<i1>) -> tensor<i32>
    %1 = "stablehlo.case"(%0) ({
      %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<32x32xf32>
      %5 = stablehlo.multiply %arg1, %4 : tensor<32x32xf32>
      stablehlo.return %5 : tensor<32x32xf32>
    }, {
      %4 = stablehlo.sine %arg1 : tensor<32x32xf32>
      %5 = stablehlo.dot_general %4, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
      stablehlo.return %5 : tensor<32x32xf32>
    }) : (tensor<i32>) -> tensor<32x32xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32x32xf32>
    %3 = stablehlo.add %1, %2 : tensor<32x32xf32>
    return %3 : tensor<32x32xf32>
  }
}
