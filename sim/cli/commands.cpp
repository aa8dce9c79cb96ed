#include <array>

#include "sim/cli/command.h"

namespace zerosim {

std::span<const CommandEntry> commands() {
  static constexpr auto kCommands = std::to_array<CommandEntry>({
      {"", "model", "Modules, parameters, FLOPs and bytes of a model",
       "zerosim model --model llama-2-7b --seq 2048\n"
       "  zerosim model --model llama-3-8b --lora rank=8,targets=q_proj,v_proj\n"
       "  zerosim model --model mixtral-8x7b --seq 4096 --routing zipf:1",
       make_model_command},
      {"", "check", "What a DeepSpeed, accelerate or FSDP file means, and what is wrong with it",
       "zerosim check ds_zero3.json --model llama-2-7b --gpus 8", make_check_command},
      {"", "memory", "Model states and peak memory per GPU, without running time",
       "zerosim memory --params 7e9 --precision bf16\n"
       "  zerosim memory --accounting paper --params 7.5e9 --world 64\n"
       "  zerosim memory --like-deepspeed --params 2851e6 --largest-layer 32e6 --gpus-per-node 8\n"
       "  zerosim memory --model llama-2-7b --cluster dgx-a100-80 --strategies zero2,zero3\n"
       "  zerosim memory --model llama-2-7b --cluster dgx-a100-80 --strategies zero3 --plot",
       make_memory_command},
      {"", "schedule", "The collectives that a rank issues, in order",
       "zerosim schedule --model gpt2 --world 4 --ds-config ds_zero3.json --json",
       make_schedule_command},
      {"", "run", "One strategy in depth",
       "zerosim run --model llama-2-7b --cluster dgx-a100-80 --gpus-per-node 4 --ds-config "
       "ds_zero3.json",
       make_run_command},
      {"", "compare", "Several strategies side by side, and which to choose",
       "zerosim compare --model llama-2-7b --cluster dgx-a100-80 --gpus-per-node 4 "
       "--strategies ddp,zero1,zero2,zero3 --micro-batch 4",
       make_compare_command},
      {"", "explain-oom", "Which buffer an out-of-memory message is about, and the ways out",
       "zerosim explain-oom --model llama-2-7b --cluster dgx-a100-40 --gpus-per-node 4 "
       "--strategies zero2 --optimizer adamw_torch <message.txt",
       make_explain_oom_command},
      {"", "calibrate",
       "Constants fitted to logs of nccl-tests, to measured kernels and to training runs",
       "zerosim calibrate all_reduce.txt all_gather.txt --cluster dgx-h100 -o calibration.json\n"
       "  zerosim calibrate *.txt --hold-out every-second\n"
       "  zerosim calibrate gemm.csv -o kernels.json\n"
       "  zerosim calibrate training_runs.csv -o host.json",
       make_calibrate_command},
      {"validate", "cases", "User cases: what the simulator must and should answer",
       "zerosim validate cases tests/data/cases", make_validate_cases_command},
      {"validate", "collectives", "Logs of nccl-tests against the collective model",
       "zerosim validate collectives all_reduce_2n.txt\n"
       "  zerosim validate collectives *.txt --cluster dgx-h100 --nodes 2",
       make_validate_collectives_command},
      {"validate", "kernels", "Measured matrix products and attentions against the kernel model",
       "zerosim validate kernels gemm.csv\n"
       "  zerosim validate kernels gemm.csv -v --calibration calibration.json",
       make_validate_kernels_command},
      {"validate", "memory", "Published memory rows against the simulator",
       "zerosim validate memory rows.csv", make_validate_memory_command},
      {"validate", "runs", "Published training runs against the simulator",
       "zerosim validate runs training_runs.csv\n"
       "  zerosim validate runs training_runs.csv --plot runs.svg\n"
       "  zerosim validate runs training_runs.csv --rows vtrain-h1024-l12-w2-g8-m1\n"
       "  zerosim validate runs training_runs.csv --calibration host.json",
       make_validate_runs_command},
      {"validate", "schedule", "Recorded collectives of real runs against the simulator's",
       "zerosim validate schedule ds_s2_bf16_w2.json ddp_fp32_w2.json",
       make_validate_schedule_command},
      {"topo", "import", "A cluster file of nvidia-smi's matrix or NCCL's topology XML",
       "zerosim topo import topo.txt --gpu H100-SXM5-80 -o node.json\n"
       "  nvidia-smi topo -m | zerosim topo import - -o node.json\n"
       "  zerosim topo import nccl_topo.xml --graph nccl_graph.xml -o node.json",
       make_topo_import_command},
      {"topo", "presets", "The clusters that --cluster knows by name", "zerosim topo presets",
       make_topo_presets_command},
      {"topo", "show", "A cluster's node, links, bounds and fabric",
       "zerosim topo show --cluster dgx1-v100\n"
       "  zerosim topo show --cluster aws-p4d --nodes 4 --gpus-per-node 4 --as matrix\n"
       "  zerosim topo show --cluster examples/clusters/uneven.json --classes",
       make_topo_show_command},
  });
  return kCommands;
}

}  // namespace zerosim
