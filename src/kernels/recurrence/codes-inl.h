// What candidates of chunked kernels run: the code token by token, and that by chunks.
#if defined(FOVEA_RECURRENCE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_CODES_INL_H_
#undef FOVEA_RECURRENCE_CODES_INL_H_
#else
#define FOVEA_RECURRENCE_CODES_INL_H_
#endif

#include "fovea/core/cancellation.h"
#include "kernels/recurrence/chunked_backward-inl.h"
#include "kernels/recurrence/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Backward of one token is a chunk of one: its products are as many.
template <class T>
constexpr RecurrenceCode<T> kCodes[] = {
    {StepForwardBytes<T>, StepForward<T>, ChunkedBackwardBytes<T>, ChunkedBackward<T>},
    {ChunkedForwardBytes<T>, ChunkedForward<T>, ChunkedBackwardBytes<T>, ChunkedBackward<T>, SavedCount<T>}};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
