// Which attribute each field of the structs of ir/facts.h stands for. ir/facts.cc alone reads it: tuples of members are slow to compile.
#pragma once

#include <string_view>
#include <tuple>

#include "ir/facts.h"

namespace octavo::ir {

/// A field of a struct and the attribute that it stands for. Enumerators are spelled as `spelling` says.
template <class Struct, class T>
struct Field {
  std::string_view attribute;
  T Struct::*member;
};
template <class Struct, class T>
Field(const char*, T Struct::*) -> Field<Struct, T>;

constexpr auto fields_of(const Window&) {
  return std::tuple(Field{"kernel", &Window::kernel}, Field{"strides", &Window::strides}, Field{"dilations", &Window::dilations},
                    Field{"pads", &Window::pads}, Field{"output_padding", &Window::output_padding}, Field{"group", &Window::group},
                    Field{"offset_group", &Window::offset_group}, Field{"count_include_pad", &Window::count_include_pad},
                    Field{"column_major", &Window::column_major}, Field{"compute", &Window::arithmetic});
}
constexpr auto fields_of(const Product&) {
  return std::tuple(Field{"compute", &Product::arithmetic});
}
constexpr auto fields_of(const Reduction&) {
  return std::tuple(Field{"axes", &Reduction::axes}, Field{"keepdims", &Reduction::keepdims});
}
constexpr auto fields_of(const Along&) {
  return std::tuple(Field{"axis", &Along::axis});
}
constexpr auto fields_of(const ArgMax&) {
  return std::tuple(Field{"axis", &ArgMax::axis}, Field{"keepdims", &ArgMax::keepdims},
                    Field{"select_last_index", &ArgMax::select_last_index});
}
constexpr auto fields_of(const Resize&) {
  return std::tuple(Field{"scales", &Resize::scales}, Field{"sizes", &Resize::sizes},
                    Field{"coordinate_mode", &Resize::coordinates}, Field{"cubic_coeff_a", &Resize::cubic_coeff_a},
                    Field{"exclude_outside", &Resize::exclude_outside});
}
constexpr auto fields_of(const InstanceNorm&) {
  return std::tuple(Field{"epsilon", &InstanceNorm::epsilon});
}
constexpr auto fields_of(const LayerNorm&) {
  return std::tuple(Field{"axis", &LayerNorm::axis}, Field{"epsilon", &LayerNorm::epsilon});
}
constexpr auto fields_of(const LocalResponse&) {
  return std::tuple(Field{"size", &LocalResponse::size}, Field{"alpha", &LocalResponse::alpha}, Field{"beta", &LocalResponse::beta},
                    Field{"bias", &LocalResponse::bias});
}
constexpr auto fields_of(const Math&) {
  return std::tuple(Field{"function", &Math::function});
}
constexpr auto fields_of(const Bitwise&) {
  return std::tuple(Field{"function", &Bitwise::function});
}
constexpr auto fields_of(const Cast&) {
  return std::tuple(Field{"to", &Cast::to}, Field{"saturate", &Cast::saturate}, Field{"round_mode", &Cast::round_mode},
                    Field{"held", &Cast::held});
}
constexpr auto fields_of(const Scatter&) {
  return std::tuple(Field{"kind", &Scatter::kind}, Field{"axis", &Scatter::axis}, Field{"reduction", &Scatter::combine});
}
constexpr auto fields_of(const TopK&) {
  return std::tuple(Field{"axis", &TopK::axis}, Field{"k", &TopK::k}, Field{"largest", &TopK::largest},
                    Field{"sorted", &TopK::sorted});
}
constexpr auto fields_of(const Cumulate&) {
  return std::tuple(Field{"axis", &Cumulate::axis}, Field{"function", &Cumulate::function},
                    Field{"exclusive", &Cumulate::exclusive}, Field{"reverse", &Cumulate::reverse});
}
constexpr auto fields_of(const GridSample&) {
  return std::tuple(Field{"mode", &GridSample::mode}, Field{"padding_mode", &GridSample::padding},
                    Field{"align_corners", &GridSample::align_corners});
}
constexpr auto fields_of(const RoiAlign&) {
  return std::tuple(Field{"mode", &RoiAlign::mode}, Field{"output_height", &RoiAlign::output_height},
                    Field{"output_width", &RoiAlign::output_width}, Field{"sampling_ratio", &RoiAlign::sampling_ratio},
                    Field{"spatial_scale", &RoiAlign::spatial_scale}, Field{"half_pixel", &RoiAlign::half_pixel});
}
constexpr auto fields_of(const Recurrent&) {
  return std::tuple(Field{"cell", &Recurrent::cell}, Field{"direction", &Recurrent::direction},
                    Field{"hidden_size", &Recurrent::hidden_size}, Field{"layout", &Recurrent::layout},
                    Field{"linear_before_reset", &Recurrent::linear_before_reset}, Field{"input_forget", &Recurrent::input_forget},
                    Field{"clip", &Recurrent::clip}, Field{"activations", &Recurrent::activations},
                    Field{"alpha", &Recurrent::alpha}, Field{"beta", &Recurrent::beta});
}
constexpr auto fields_of(const Suppression&) {
  return std::tuple(Field{"center_point_box", &Suppression::center_point_box}, Field{"count", &Suppression::count});
}
constexpr auto fields_of(const Clip&) {
  return std::tuple(Field{"min", &Clip::min}, Field{"max", &Clip::max});
}
constexpr auto fields_of(const Slope&) {
  return std::tuple(Field{"alpha", &Slope::alpha});
}
constexpr auto fields_of(const Selu&) {
  return std::tuple(Field{"alpha", &Selu::alpha}, Field{"gamma", &Selu::gamma});
}
constexpr auto fields_of(const HardSigmoid&) {
  return std::tuple(Field{"alpha", &HardSigmoid::alpha}, Field{"beta", &HardSigmoid::beta});
}
constexpr auto fields_of(const Gelu&) {
  return std::tuple(Field{"approximate", &Gelu::approximate});
}
constexpr auto fields_of(const Remainder&) {
  return std::tuple(Field{"fmod", &Remainder::fmod});
}
constexpr auto fields_of(const Transpose&) {
  return std::tuple(Field{"perm", &Transpose::perm});
}
constexpr auto fields_of(const Reshape&) {
  return std::tuple(Field{"shape", &Reshape::shape});
}
constexpr auto fields_of(const Slice&) {
  return std::tuple(Field{"starts", &Slice::starts}, Field{"ends", &Slice::ends}, Field{"steps", &Slice::steps});
}
constexpr auto fields_of(const Pad&) {
  return std::tuple(Field{"pads", &Pad::pads}, Field{"mode", &Pad::mode}, Field{"value", &Pad::value},
                    Field{"value_code", &Pad::value_code});
}
constexpr auto fields_of(const Gather&) {
  return std::tuple(Field{"axis", &Gather::axis}, Field{"batch_dims", &Gather::batch_dims}, Field{"indices", &Gather::indices});
}
constexpr auto fields_of(const Tile&) {
  return std::tuple(Field{"repeats", &Tile::repeats});
}
constexpr auto fields_of(const Blocks&) {
  return std::tuple(Field{"blocksize", &Blocks::blocksize}, Field{"mode", &Blocks::mode});
}

}  // namespace octavo::ir
