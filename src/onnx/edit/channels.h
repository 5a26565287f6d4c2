// Channels of tensors between weighted layers that can be multiplied and shifted without changing what the network computes.
//
// max(0, a x) = a max(0, x) for a > 0: where every operator between the layers that make a tensor and those that read it commutes
// with a factor for each channel, the makers' weights can be multiplied by it and the readers' divided. An offset passes through
// additions alone, and a reader without padding takes it back in its bias.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/edit/layers.h"

namespace octavo::onnx {

/// Tensors that must have the same factors, because operators between them commute with factors.
struct ChannelGroup {
  std::int64_t channels = 0;
  int axis = 1;                      ///< of the channels, in every tensor of the group
  std::vector<std::string> read;     ///< tensors that weighted layers read, each once, in the order of the graph
  std::vector<std::size_t> makers;   ///< layers whose results are in the group
  std::vector<std::size_t> readers;  ///< layers whose data is in the group
  std::vector<int> norms;            ///< BatchNormalization nodes whose results are in the group, by index
  std::map<std::string, std::pair<float, float>> limits;  ///< result of a Clip -> its bounds, lower <= 0 <= upper
  bool depthwise = false;  ///< every reader multiplies one channel at a time: factors do not change its rounded weights
  bool additions = false;  ///< an Add is in the group: a chain of residual blocks
  bool offsets = false;    ///< made by convolutions and additions alone and read by convolutions without padding
};

/// `layers`: weighted_layers(model). `shapes`: of the tensors of the graph, as far as they are known.
[[nodiscard]] std::vector<ChannelGroup> channel_groups(const Editor& model, const std::vector<Layer>& layers,
                                                       const std::map<std::string, ir::Shape>& shapes);

struct ChannelChange {
  std::vector<double> factor;  ///< one for each channel; > 0
  /// Of a group with `offsets`: what is to be subtracted from the multiplied values of some tensors in `read`. A tensor that is the
  /// sum of others takes what its operands allow.
  std::map<std::string, std::vector<double>> wanted_offset;
};
/// Changes weights, biases and normalizations; `changes` is parallel to `groups`. The nodes do not change.
void change_channels(Editor& model, const std::vector<Layer>& layers, const std::vector<ChannelGroup>& groups,
                     const std::vector<ChannelChange>& changes);

}  // namespace octavo::onnx
