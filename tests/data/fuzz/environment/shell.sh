# sourced by the launcher
export PYTORCH_ALLOC_CONF="max_split_size_mb:128" NCCL_DEBUG='WARN' # words
declare -x HOME="/root"
set OMP_NUM_THREADS=8; export X=$Y
declare -x OLDPWD
M='two
lines'
