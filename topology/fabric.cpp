#include "topology/fabric.h"

#include "sim/base/error.h"

namespace zerosim {

FabricNetwork::FabricNetwork(const Fabric& /*fabric*/, int /*nodes*/, int /*nics*/,
                             BytesPerSecond /*nic_bandwidth*/) {}

int FabricNetwork::link_count() const {
  return 0;
}
BytesPerSecond FabricNetwork::capacity(int /*link*/) const {
  ZS_CHECK(false, "a single switch has no links of its own");
  return {};
}
std::string FabricNetwork::name(int /*link*/) const {
  ZS_CHECK(false, "a single switch has no links of its own");
  return {};
}
std::string FabricNetwork::level(int /*link*/) const {
  ZS_CHECK(false, "a single switch has no links of its own");
  return {};
}
void FabricNetwork::route(int /*from*/, int /*from_nic*/, int /*to*/,
                          std::vector<FabricShare>& /*links*/) const {}
int FabricNetwork::switches(int /*from*/, int /*from_nic*/, int /*to*/) const {
  return 1;
}

}  // namespace zerosim
