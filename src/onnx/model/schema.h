// The generated protobuf classes, under a short name.
#pragma once

#include "octavo_onnx.pb.h"

namespace octavo::onnx {
namespace pb = ::octavo_onnx;
}  // namespace octavo::onnx
