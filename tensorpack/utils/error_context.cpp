// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/error_context.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <typeinfo>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"

namespace tensorpack {
namespace {

std::string add_line(const std::string& text, std::string_view line) {
  return fmt::format("{}\n  {}", text, line);
}

}  // namespace

bool is_plain(const std::exception& error) {
  if (dynamic_cast<const c10::Error*>(&error) != nullptr) return true;
  static const std::array<const std::type_info*, 7> plain = {
      &typeid(std::runtime_error), &typeid(std::logic_error),  &typeid(std::invalid_argument),
      &typeid(std::out_of_range),  &typeid(std::length_error), &typeid(std::domain_error),
      &typeid(std::range_error),
  };
  return std::any_of(plain.begin(), plain.end(),
                     [&](const std::type_info* type) { return *type == typeid(error); });
}

std::exception_ptr with_context(std::exception_ptr failure, std::string_view context) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) return failure;
    return std::make_exception_ptr(Error(add_line(error.what(), context)));
  } catch (const InternalError& error) {
    return std::make_exception_ptr(InternalError(add_line(error.what(), context)));
  } catch (const std::exception& error) {
    if (!is_plain(error)) return failure;
    return std::make_exception_ptr(Error(add_line(describe(error), context)));
  } catch (...) {
    return failure;
  }
}

void rethrow_with(std::string_view context) {
  try {
    std::rethrow_exception(with_context(std::current_exception(), context));
  } catch (const Error& error) {
    if (typeid(error) != typeid(Error)) logging::error("{}", add_line(error.what(), context));
    throw;
  } catch (const InternalError&) {
    throw;
  } catch (const StopTraining&) {
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    logging::error("{}", add_line(error.what(), context));
    throw;
  } catch (...) {
    logging::error("An exception was thrown {}.", context);
    throw;
  }
}

}  // namespace tensorpack
