// SPDX-License-Identifier: Apache-2.0
// Where an exception passed on its way up.
#pragma once

#include <exception>
#include <string_view>

namespace tensorpack {

/// Whether an exception says no more than its text does: those of libtorch and the plain ones of
/// the standard library. Somebody may wait for the type of any other.
bool is_plain(const std::exception& error);

/// The same exception with one more line, which says where it happened:
///
///   [run 'InferenceTower'] index out of range in self (in aten::embedding, scope 'embed')
///     in trigger_epoch() of InferenceRunner
///     at global_step = 12
///
/// An Error stays one, an InternalError too, and plain exceptions become Errors. All others keep
/// their type, and so their text: StopTraining, Interrupted, those of the user.
std::exception_ptr with_context(std::exception_ptr failure, std::string_view context);

/// Throws the exception that is being handled again, as with_context() makes it. What the user's
/// own types cannot carry is told in the log.
[[noreturn]] void rethrow_with(std::string_view context);

}  // namespace tensorpack
