// How a declaration of ours is held against NVIDIA's; includes nothing of either.
#pragma once

#include <type_traits>

#define SAME_NUMBER(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs)

// Functions: as many parameters, each as large, pointers where they have pointers, and so for what those point to. Ours
// has void* for their handles, integers for their enums, and records of its own for theirs.
template <typename Ours, typename Theirs>
struct Same : std::bool_constant<sizeof(Ours) == sizeof(Theirs) && !std::is_pointer_v<Theirs> &&
                                 std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>> {};
template <typename Ours, typename Theirs, typename = void>
struct SamePointee : Same<std::remove_cv_t<Ours>, std::remove_cv_t<Theirs>> {};
template <typename Ours, typename Theirs>
struct SamePointee<Ours, Theirs, std::enable_if_t<std::is_void_v<Ours> || std::is_class_v<Ours>>>
    : std::bool_constant<std::is_class_v<Theirs> || (std::is_void_v<Ours> && std::is_void_v<Theirs>)> {};
template <typename Ours, typename Theirs>
struct Same<Ours*, Theirs*> : SamePointee<Ours, Theirs> {};
template <typename Ours, typename Theirs>
struct Same<Ours*, Theirs> : std::false_type {};
template <typename R, typename... Ours, typename TheirR, typename... Theirs>
struct SamePointee<R(Ours...), TheirR(Theirs...), void> {
  static constexpr bool compare() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) return false;
    else if constexpr (std::is_void_v<R> || std::is_void_v<TheirR>) {
      return std::is_same_v<R, TheirR> && (Same<Ours, Theirs>::value && ...);
    } else return Same<R, TheirR>::value && (Same<Ours, Theirs>::value && ...);
  }
  static constexpr bool value = compare();
};
