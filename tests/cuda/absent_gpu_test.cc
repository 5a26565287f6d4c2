// GPUs by their names: what is known of them, and what an engine for one that is not here can do.
#include "cuda/device/absent_gpu.h"

#include <gtest/gtest.h>

#include "cuda/provider.h"

namespace octavo::cuda {
namespace {

TEST(AbsentGpu, NamesAndArchitectures) {
  for (const char* name : {"RTX 4090", "rtx4090", "NVIDIA GeForce RTX 4090"}) {
    const auto gpu = find_gpu(name);
    ASSERT_TRUE(gpu) << name << ": " << gpu.error().message;
    EXPECT_EQ(gpu->name, "RTX 4090");
    EXPECT_EQ(gpu->architecture.text(), "sm_89");
    EXPECT_EQ(gpu->multiprocessors, 128);
    EXPECT_EQ(gpu->shared_bytes, 99 * 1024);
  }
  for (const char* name : {"sm_90", "sm_90a", "H100"}) EXPECT_EQ(find_gpu(name)->architecture.text(), "sm_90a") << name;
}

TEST(AbsentGpu, NamesThatADriverGives) {
  const std::pair<const char*, const char*> names[] = {{"NVIDIA H100 80GB HBM3", "H100"},
                                                       {"NVIDIA H100 PCIe", "H100 PCIe"},
                                                       {"NVIDIA H200", "H200"},
                                                       {"NVIDIA GH200 144G HBM3e", "GH200"},
                                                       {"NVIDIA A100-SXM4-80GB", "A100"},
                                                       {"NVIDIA A100-PCIE-40GB", "A100"},
                                                       {"NVIDIA A100 80GB PCIe", "A100"},
                                                       {"Tesla T4", "T4"},
                                                       {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"},
                                                       {"NVIDIA RTX A6000", "RTX A6000"},
                                                       {"NVIDIA L40S", "L40S"}};
  for (const auto& [name, known] : names) {
    const auto gpu = find_gpu(name);
    ASSERT_TRUE(gpu) << name << ": " << gpu.error().message;
    EXPECT_EQ(gpu->name, known) << name;
  }
}

TEST(AbsentGpu, WordsThatMeanAnotherGpuAreKept) {
  for (const char* name : {"NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA H100 NVL", "NVIDIA A10G",
                           "", "NVIDIA", "80GB"})
    EXPECT_FALSE(find_gpu(name)) << name;
}

TEST(AbsentGpu, OtherNamesAreRefusedWithTheNearest) {
  const auto unknown = find_gpu("RTX 409");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().kind, ErrorKind::usage);
  EXPECT_NE(unknown.error().message.find("RTX 4090"), std::string::npos) << unknown.error().message;
  GpuFacts old;
  old.architecture = "sm_70";
  EXPECT_NE(why_unsupported(old).find("sm_75 or later"), std::string::npos) << why_unsupported(old);
}

TEST(AbsentGpu, EveryNameIsFoundOrRefusedByItsArchitecture) {
  for (const std::string& name : known_gpus()) {
    const auto gpu = find_gpu(name);
    if (gpu) {
      EXPECT_GE(gpu->shared_bytes, 64 * 1024) << name;
      EXPECT_EQ(&provider(*gpu), &provider(*gpu)) << name;
    } else {
      EXPECT_EQ(gpu.error().kind, ErrorKind::unsupported) << name;
    }
  }
}

TEST(AbsentGpu, TakesBytesAndRunsNothing) {
  const region::Device& device = absent_gpu(*find_gpu("sm_86"));
  const auto memory = device.allocate(1024);
  ASSERT_TRUE(memory);
  std::byte bytes[4] = {};
  EXPECT_TRUE(device.write((*memory)->address(), bytes));
  EXPECT_EQ(device.read(bytes, (*memory)->address()).error().kind, ErrorKind::unsupported);
  const auto executor = device.executor({}, {});
  ASSERT_FALSE(executor);
  EXPECT_NE(executor.error().message.find("sm_86"), std::string::npos) << executor.error().message;
}

}  // namespace
}  // namespace octavo::cuda
