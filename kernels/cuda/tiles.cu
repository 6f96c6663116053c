#include "kernels/cuda/tiles.cuh"

#include "kernels/cuda/by_shape.cuh"

namespace allot::kernels::cuda {

StepKernel tilesKernelOf(int head_dim, Element element) {
  return byShape<StepKernel>(head_dim, element, [](auto shape) -> StepKernel {
    using S = decltype(shape);
    return tilesKernel<S::kDim, typename S::Type>;
  });
}

int mostTiles(int tile_keys, int max_length) {
  // A window may begin and end within a tile.
  return max_length / (tile_keys > 0 ? tile_keys : kLeastTile) + 2;
}

}  // namespace allot::kernels::cuda
