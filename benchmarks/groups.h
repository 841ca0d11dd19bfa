// SPDX-License-Identifier: Apache-2.0
// The groups of benchmarks; each is a file of the same name.
#pragma once

#include "benchmarks/bench.h"

namespace tensorpack::bench {

void add_callbacks_benchmarks(Suite& suite);
void add_checkpoint_benchmarks(Suite& suite);
void add_data_benchmarks(Suite& suite);
void add_engine_benchmarks(Suite& suite);
void add_models_benchmarks(Suite& suite);
void add_optim_benchmarks(Suite& suite);
void add_parallel_benchmarks(Suite& suite);
void add_predict_benchmarks(Suite& suite);
void add_report_benchmarks(Suite& suite);
void add_trainer_benchmarks(Suite& suite);
void add_utils_benchmarks(Suite& suite);

}  // namespace tensorpack::bench
