module @jit_train attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64x64xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<64x64xf32> {tf.aliasing_output = 1 : i32}, %arg2: tensor<64x64xf32> {tf.aliasing_output = 2 : i32}, %arg3: tensor<64x64xf32> {tf.aliasing_output = 3 : i32}, %arg4: tensor<64x64xf32> {tf.aliasing_output = 4 : i32}, %arg5: tensor<64x64xf32> {tf.aliasing_output = 5 : i32}, %arg6: tensor<64x64xf32> {tf.aliasing_output = 6 : i32}, %arg7: tensor<64x64xf32> {tf.aliasing_output = 7 : i32}, %arg8: tensor<128x64xf32>) -> (tensor<64x64xf32> {jax.result_info = "result[0][0]"}, tensor<64x64xf32> {jax.result_info = "result[0][1]"}, tensor<64x64xf32> {jax.result_info = "result[0][2]"}, tensor<64x64xf32> {jax.result_info = "result[0][3]"}, tensor<64x64xf32> {jax.result_info = "result[1][0]"}, tensor<64x64xf32> {jax.result_info = "result[1][1]"}, tensor<64x64xf32> {jax.result_info = "result[1][2]"}, tensor<64x64xf32> {jax.result_info = "result[1][3]"}, tensor<f32> {jax.result_info = "result[2]"}) {
    %0 = stablehlo.dot_general %arg8, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %1 = stablehlo.multiply %0, %0 : tensor<128x64xf32>
    %2 = stablehlo.multiply %1, %0 : tensor<128x64xf32>
    %3 = stablehlo.multiply %0, %0 : tensor<128x64xf32>
    %cst = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %5 = stablehlo.multiply %4, %3 : tensor<128x64xf32>
    %cst_0 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %7 = stablehlo.multiply %6, %2 : tensor<128x64xf32>
    %8 = stablehlo.add %0, %7 : tensor<128x64xf32>
    %cst_1 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %10 = stablehlo.multiply %9, %8 : tensor<128x64xf32>
    %11 = stablehlo.tanh %10 : tensor<128x64xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %13 = stablehlo.subtract %12, %11 : tensor<128x64xf32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %15 = stablehlo.add %14, %11 : tensor<128x64xf32>
    %cst_4 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %16 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %17 = stablehlo.multiply %16, %15 : tensor<128x64xf32>
    %18 = stablehlo.multiply %0, %17 : tensor<128x64xf32>
    %19 = stablehlo.dot_general %18, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %20 = stablehlo.multiply %19, %19 : tensor<128x64xf32>
    %21 = stablehlo.multiply %20, %19 : tensor<128x64xf32>
    %22 = stablehlo.multiply %19, %19 : tensor<128x64xf32>
    %cst_5 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %24 = stablehlo.multiply %23, %22 : tensor<128x64xf32>
    %cst_6 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %25 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %26 = stablehlo.multiply %25, %21 : tensor<128x64xf32>
    %27 = stablehlo.add %19, %26 : tensor<128x64xf32>
    %cst_7 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %28 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %29 = stablehlo.multiply %28, %27 : tensor<128x64xf32>
    %30 = stablehlo.tanh %29 : tensor<128x64xf32>
    %cst_8 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %32 = stablehlo.subtract %31, %30 : tensor<128x64xf32>
    %cst_9 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %33 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %34 = stablehlo.add %33, %30 : tensor<128x64xf32>
    %cst_10 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %35 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %36 = stablehlo.multiply %35, %34 : tensor<128x64xf32>
    %37 = stablehlo.multiply %19, %36 : tensor<128x64xf32>
    %38 = stablehlo.dot_general %37, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %39 = stablehlo.multiply %38, %38 : tensor<128x64xf32>
    %40 = stablehlo.multiply %39, %38 : tensor<128x64xf32>
    %41 = stablehlo.multiply %38, %38 : tensor<128x64xf32>
    %cst_11 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %43 = stablehlo.multiply %42, %41 : tensor<128x64xf32>
    %cst_12 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %44 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %45 = stablehlo.multiply %44, %40 : tensor<128x64xf32>
    %46 = stablehlo.add %38, %45 : tensor<128x64xf32>
    %cst_13 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %47 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %48 = stablehlo.multiply %47, %46 : tensor<128x64xf32>
    %49 = stablehlo.tanh %48 : tensor<128x64xf32>
    %cst_14 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %50 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %51 = stablehlo.subtract %50, %49 : tensor<128x64xf32>
    %cst_15 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %52 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %53 = stablehlo.add %52, %49 : tensor<128x64xf32>
    %cst_16 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %54 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %55 = stablehlo.multiply %54, %53 : tensor<128x64xf32>
    %56 = stablehlo.multiply %38, %55 : tensor<128x64xf32>
    %57 = stablehlo.dot_general %56, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %58 = stablehlo.multiply %57, %57 : tensor<128x64xf32>
    %59 = stablehlo.multiply %58, %57 : tensor<128x64xf32>
    %60 = stablehlo.multiply %57, %57 : tensor<128x64xf32>
    %cst_17 = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %61 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %62 = stablehlo.multiply %61, %60 : tensor<128x64xf32>
    %cst_18 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %64 = stablehlo.multiply %63, %59 : tensor<128x64xf32>
    %65 = stablehlo.add %57, %64 : tensor<128x64xf32>
    %cst_19 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %66 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %67 = stablehlo.multiply %66, %65 : tensor<128x64xf32>
    %68 = stablehlo.tanh %67 : tensor<128x64xf32>
    %cst_20 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %70 = stablehlo.subtract %69, %68 : tensor<128x64xf32>
    %cst_21 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %71 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %72 = stablehlo.add %71, %68 : tensor<128x64xf32>
    %cst_22 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %73 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %74 = stablehlo.multiply %73, %72 : tensor<128x64xf32>
    %75 = stablehlo.multiply %57, %74 : tensor<128x64xf32>
    %76 = stablehlo.multiply %75, %75 : tensor<128x64xf32>
    %cst_23 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %77 = stablehlo.broadcast_in_dim %cst_23, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %78 = stablehlo.multiply %77, %75 : tensor<128x64xf32>
    %cst_24 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %79 = stablehlo.reduce(%76 init: %cst_24) applies stablehlo.add across dimensions = [0, 1] : (tensor<128x64xf32>, tensor<f32>) -> tensor<f32>
    %cst_25 = stablehlo.constant dense<8.192000e+03> : tensor<f32>
    %80 = stablehlo.divide %79, %cst_25 : tensor<f32>
    %cst_26 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_27 = stablehlo.constant dense<8.192000e+03> : tensor<f32>
    %81 = stablehlo.divide %cst_26, %cst_27 : tensor<f32>
    %82 = stablehlo.broadcast_in_dim %81, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %83 = stablehlo.multiply %82, %78 : tensor<128x64xf32>
    %84 = stablehlo.multiply %57, %83 : tensor<128x64xf32>
    %85 = stablehlo.multiply %83, %74 : tensor<128x64xf32>
    %cst_28 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %86 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %87 = stablehlo.multiply %86, %84 : tensor<128x64xf32>
    %88 = stablehlo.multiply %87, %70 : tensor<128x64xf32>
    %89 = stablehlo.multiply %88, %68 : tensor<128x64xf32>
    %90 = stablehlo.add %88, %89 : tensor<128x64xf32>
    %cst_29 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %91 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %92 = stablehlo.multiply %91, %90 : tensor<128x64xf32>
    %93 = stablehlo.add %85, %92 : tensor<128x64xf32>
    %cst_30 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %94 = stablehlo.broadcast_in_dim %cst_30, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %95 = stablehlo.multiply %94, %92 : tensor<128x64xf32>
    %96 = stablehlo.multiply %95, %62 : tensor<128x64xf32>
    %97 = stablehlo.add %93, %96 : tensor<128x64xf32>
    %98 = stablehlo.dot_general %97, %56, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
    %99 = stablehlo.transpose %98, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %100 = stablehlo.dot_general %97, %arg3, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %101 = stablehlo.multiply %38, %100 : tensor<128x64xf32>
    %102 = stablehlo.multiply %100, %55 : tensor<128x64xf32>
    %cst_31 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %103 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %104 = stablehlo.multiply %103, %101 : tensor<128x64xf32>
    %105 = stablehlo.multiply %104, %51 : tensor<128x64xf32>
    %106 = stablehlo.multiply %105, %49 : tensor<128x64xf32>
    %107 = stablehlo.add %105, %106 : tensor<128x64xf32>
    %cst_32 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %108 = stablehlo.broadcast_in_dim %cst_32, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %109 = stablehlo.multiply %108, %107 : tensor<128x64xf32>
    %110 = stablehlo.add %102, %109 : tensor<128x64xf32>
    %cst_33 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %111 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %112 = stablehlo.multiply %111, %109 : tensor<128x64xf32>
    %113 = stablehlo.multiply %112, %43 : tensor<128x64xf32>
    %114 = stablehlo.add %110, %113 : tensor<128x64xf32>
    %115 = stablehlo.dot_general %114, %37, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
    %116 = stablehlo.transpose %115, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %117 = stablehlo.dot_general %114, %arg2, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %118 = stablehlo.multiply %19, %117 : tensor<128x64xf32>
    %119 = stablehlo.multiply %117, %36 : tensor<128x64xf32>
    %cst_34 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %120 = stablehlo.broadcast_in_dim %cst_34, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %121 = stablehlo.multiply %120, %118 : tensor<128x64xf32>
    %122 = stablehlo.multiply %121, %32 : tensor<128x64xf32>
    %123 = stablehlo.multiply %122, %30 : tensor<128x64xf32>
    %124 = stablehlo.add %122, %123 : tensor<128x64xf32>
    %cst_35 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %125 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %126 = stablehlo.multiply %125, %124 : tensor<128x64xf32>
    %127 = stablehlo.add %119, %126 : tensor<128x64xf32>
    %cst_36 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %128 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %129 = stablehlo.multiply %128, %126 : tensor<128x64xf32>
    %130 = stablehlo.multiply %129, %24 : tensor<128x64xf32>
    %131 = stablehlo.add %127, %130 : tensor<128x64xf32>
    %132 = stablehlo.dot_general %131, %18, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
    %133 = stablehlo.transpose %132, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %134 = stablehlo.dot_general %131, %arg1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
    %135 = stablehlo.multiply %0, %134 : tensor<128x64xf32>
    %136 = stablehlo.multiply %134, %17 : tensor<128x64xf32>
    %cst_37 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %137 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %138 = stablehlo.multiply %137, %135 : tensor<128x64xf32>
    %139 = stablehlo.multiply %138, %13 : tensor<128x64xf32>
    %140 = stablehlo.multiply %139, %11 : tensor<128x64xf32>
    %141 = stablehlo.add %139, %140 : tensor<128x64xf32>
    %cst_38 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %142 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %143 = stablehlo.multiply %142, %141 : tensor<128x64xf32>
    %144 = stablehlo.add %136, %143 : tensor<128x64xf32>
    %cst_39 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %145 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<128x64xf32>
    %146 = stablehlo.multiply %145, %143 : tensor<128x64xf32>
    %147 = stablehlo.multiply %146, %5 : tensor<128x64xf32>
    %148 = stablehlo.add %144, %147 : tensor<128x64xf32>
    %149 = stablehlo.dot_general %148, %arg8, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
    %150 = stablehlo.transpose %149, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %cst_40 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %151 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %152 = stablehlo.multiply %151, %arg4 : tensor<64x64xf32>
    %153 = stablehlo.add %152, %150 : tensor<64x64xf32>
    %cst_41 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %154 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %155 = stablehlo.multiply %154, %arg5 : tensor<64x64xf32>
    %156 = stablehlo.add %155, %133 : tensor<64x64xf32>
    %cst_42 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %157 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %158 = stablehlo.multiply %157, %arg6 : tensor<64x64xf32>
    %159 = stablehlo.add %158, %116 : tensor<64x64xf32>
    %cst_43 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %160 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %161 = stablehlo.multiply %160, %arg7 : tensor<64x64xf32>
    %162 = stablehlo.add %161, %99 : tensor<64x64xf32>
    %cst_44 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %163 = stablehlo.broadcast_in_dim %cst_44, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %164 = stablehlo.multiply %163, %153 : tensor<64x64xf32>
    %165 = stablehlo.subtract %arg0, %164 : tensor<64x64xf32>
    %cst_45 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %166 = stablehlo.broadcast_in_dim %cst_45, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %167 = stablehlo.multiply %166, %156 : tensor<64x64xf32>
    %168 = stablehlo.subtract %arg1, %167 : tensor<64x64xf32>
    %cst_46 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %169 = stablehlo.broadcast_in_dim %cst_46, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %170 = stablehlo.multiply %169, %159 : tensor<64x64xf32>
    %171 = stablehlo.subtract %arg2, %170 : tensor<64x64xf32>
    %cst_47 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %172 = stablehlo.broadcast_in_dim %cst_47, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
    %173 = stablehlo.multiply %172, %162 : tensor<64x64xf32>
    %174 = stablehlo.subtract %arg3, %173 : tensor<64x64xf32>
    return %165, %168, %171, %174, %153, %156, %159, %162, %80 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<f32>
  }
}
