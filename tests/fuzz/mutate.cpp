// Mutations that know the messages, so that inputs get past the parser and far into the checks.
#include <google/protobuf/message.h>

#include <cfloat>
#include <cmath>
#include <random>

#include "tests/fuzz/harness.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed);

namespace allot::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::minstd_rand;

// A number near the old one, or one at which something ends.
uint64_t numberNear(uint64_t old, Random& random) {
  static const uint64_t ends[] = {0,          1,
                                  4,          8,
                                  0x7fffffff, 0x80000000,
                                  0xffffffff, 0x20000000000000,
                                  INT64_MAX,  0xfffffffffffffffe,
                                  UINT64_MAX};
  switch (random() % 4) {
    case 0:
      return old + 1;
    case 1:
      return old - 1;
    case 2:
      return old ^ (uint64_t{1} << (random() % 64));
    default:
      return ends[random() % std::size(ends)];
  }
}

double numberNear(double old, Random& random) {
  static const double odd[] = {0,   -0.0, 1,     -1,       0.5,       1e7,          NAN,    1e-9,
                               1e9, -1e9, 1e308, INFINITY, -INFINITY, DBL_TRUE_MIN, DBL_MAX};
  switch (random() % 4) {
    case 0:
      return -old;
    case 1:
      return old * (1 + 1e-7 * static_cast<double>(random() % 100));
    case 2:
      return static_cast<double>(random() % 1001) / 1000;
    default:
      return odd[random() % std::size(odd)];
  }
}

std::string textNear(std::string old, Random& random) {
  switch (random() % 5) {
    case 0:
      return "";
    case 1:
      return old + "x";
    case 2:
      return std::string(1 + random() % 300, '\x7f');
    case 3:
      if (!old.empty()) old[random() % old.size()] = static_cast<char>(random() % 128);
      return old;
    default:
      return std::string("\0\n<&\"", 5) + old;
  }
}

void mutateMessage(Message* message, Random& random);

void mutateSingular(Message* message, const FieldDescriptor* field, Random& random) {
  const Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      reflection.SetUInt32(message, field,
                           static_cast<uint32_t>(numberNear(
                               uint64_t{reflection.GetUInt32(*message, field)}, random)));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      reflection.SetUInt64(message, field,
                           numberNear(reflection.GetUInt64(*message, field), random));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      reflection.SetDouble(message, field,
                           numberNear(reflection.GetDouble(*message, field), random));
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(message, field, textNear(reflection.GetString(*message, field), random));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      reflection.SetBool(message, field, !reflection.GetBool(*message, field));
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      mutateMessage(reflection.MutableMessage(message, field), random);
      break;
    default:
      break;
  }
}

void addElement(Message* message, const FieldDescriptor* field, Random& random) {
  const Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      reflection.AddUInt32(message, field, static_cast<uint32_t>(random() % 9));
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.AddString(message, field, textNear("", random));
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      mutateMessage(reflection.AddMessage(message, field), random);
      break;
    default:
      break;
  }
}

void mutateElement(Message* message, const FieldDescriptor* field, int place, Random& random) {
  const Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32: {
      const uint32_t old = reflection.GetRepeatedUInt32(*message, field, place);
      const auto number = static_cast<uint32_t>(numberNear(uint64_t{old}, random));
      reflection.SetRepeatedUInt32(message, field, place, number);
      if (random() % 2 == 0) {  // the same sum, if it can be
        const int last = reflection.FieldSize(*message, field) - 1;
        const uint32_t balance = reflection.GetRepeatedUInt32(*message, field, last) + old - number;
        reflection.SetRepeatedUInt32(message, field, last, balance);
      }
      break;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetRepeatedString(
          message, field, place,
          textNear(reflection.GetRepeatedString(*message, field, place), random));
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      mutateMessage(reflection.MutableRepeatedMessage(message, field, place), random);
      break;
    default:
      break;
  }
}

void mutateRepeated(Message* message, const FieldDescriptor* field, Random& random) {
  const Reflection& reflection = *message->GetReflection();
  const int size = reflection.FieldSize(*message, field);
  if (size == 0) return addElement(message, field, random);
  const int place = static_cast<int>(random() % static_cast<unsigned>(size));
  switch (random() % 5) {
    case 0:
      return addElement(message, field, random);
    case 1:
      return reflection.RemoveLast(message, field);
    case 2:
      return reflection.SwapElements(message, field, place, size - 1);
    default:
      return mutateElement(message, field, place, random);
  }
}

void mutateMessage(Message* message, Random& random) {
  const auto& descriptor = *message->GetDescriptor();
  const FieldDescriptor* field = descriptor.field(
      static_cast<int>(random() % static_cast<unsigned>(descriptor.field_count())));
  if (field->is_repeated())
    mutateRepeated(message, field, random);
  else
    mutateSingular(message, field, random);
}

}  // namespace
}  // namespace allot::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  using namespace allot;
  fuzz::Random random(seed + 1);
  if (size == 0 || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  v1::EpisodeResult result;
  v1::EvaluationResult evaluation;
  const bool evaluates = fuzz::kindOf(data[0]) == fuzz::Kind::kEvaluation;
  google::protobuf::Message* message = &result;
  if (evaluates) message = &evaluation;
  if (!message->ParseFromArray(data + 1, static_cast<int>(size - 1))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  for (auto changes = 1 + random() % 3; changes > 0; --changes) {
    fuzz::mutateMessage(message, random);
  }
  if (!evaluates && random() % 2 == 0) fuzz::repair(fuzz::runOf(data[0]), &result);
  if (random() % 16 == 0) data[0] = static_cast<uint8_t>(random());
  const std::string bytes = message->SerializeAsString();
  if (bytes.size() + 1 > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(bytes.begin(), bytes.end(), data + 1);
  return bytes.size() + 1;
}
