/// \file
/// NCCL_* variables of a job: which ones are known, and what they do to a cluster's collectives.
///
/// Values are read as NCCL 2.30 reads them, but that what it would pass over in silence is an
/// error. Names, values and defaults: NCCL user guide, "Environment Variables"; where that is
/// silent src/graph/tuning.cc and paths.cc. What each one does here: topology/nccl_settings.h
/// (choice of algorithm) and topology/nccl_paths.h (links).
///
///     NCCL_ALGO, NCCL_PROTO      names; "^" in front: all but these; behind a ";" those of one
///                                operation: "ring;allreduce:tree,ring;allgather:^pat"
///     NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_MIN_CTAS, NCCL_MAX_CTAS  at least 1; of the
///                                minima 64 counts where more are asked for (_MIN_NRINGS,
///                                _MAX_NRINGS as they were called)
///     NCCL_NTHREADS              a multiple of 32, at least 64; 512 counts for more
///     NCCL_P2P_DISABLE, NCCL_SHM_DISABLE, NCCL_IB_DISABLE  0 or 1
///     NCCL_P2P_LEVEL, NCCL_NET_GDR_LEVEL  LOC, NVL, NVB, C2C, PIX, PXB, PXN, P2C, PHB, SYS, or an
///                                old number: 0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 SYS
///     NCCL_NET                   "Socket": TCP; others are left to themselves
///     NCCL_NET_PLUGIN            "none": TCP, where adapters need one (EFA, GPUDirect-TCPX)
///     NCCL_IB_HCA                names: "mlx5_0:1,mlx5_2", "^mlx5_3", "=mlx5_1", "^=mlx5_1"
///     NCCL_NET_GDR_READ, NCCL_COLLNET_ENABLE, NCCL_MNNVL_ENABLE  0 or 1
///     NCCL_NVLS_ENABLE           0, 1 or 2
///
/// An empty value counts as not set. All other known names change nothing here, and that is said.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/environment.h"
#include "topology/cluster.h"

namespace zerosim {

/// Names that NCCL knows, those above among them.
[[nodiscard]] const std::vector<std::string_view>& nccl_variables();

/// Whether it may change a cluster.
[[nodiscard]] bool is_followed_nccl_variable(std::string_view name);

/// Does what the variables say.
///
/// Whether one matters is found out: it "changes nothing here" if the collectives are the same
/// without it (topology/collective_change.h), be it that the cluster never had what it takes away
/// or that another variable has done so. \param elsewhere  names that the caller follows itself
/// \returns for each variable that is set what it does to this cluster, or that it does nothing.
/// \throws ConfigError  at the value that is wrong, or that only a shell could expand; at the
///                      variable that leaves GPUs without a way to each other.
[[nodiscard]] std::vector<std::string> follow_nccl_variables(
    const Environment& environment, Cluster& cluster,
    const std::vector<std::string>& elsewhere = {});

/// "NCCL_ALGO=Ring" of each variable that is set and followed, in the order in which they are.
[[nodiscard]] std::vector<std::string> followed_settings(const Environment& environment);

}  // namespace zerosim
