// Carries out AMX instructions in software, so that the machine code of the tile kernels is tested on
// processors without tiles. FOVEA_EMULATE_AMX=1 makes it trap these instructions (SIGILL). It does what
// Intel's manual says (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, "TDPBF16PS"
// and others). A kernel that uses a tile which is not set up, or that leaves tiles behind, ends the program.
#include <cstdlib>

#if defined(__x86_64__) && defined(__linux__)
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/tiles/product.h"

namespace {

struct Tiles {
  bool configured = false;
  std::uint16_t bytes_a_row[8];
  std::uint8_t rows[8];
  std::uint32_t data[8][16][16];
};
thread_local Tiles tiles;

[[noreturn]] void give_up(const char* why) {
  const auto ignored = write(2, why, std::strlen(why));
  static_cast<void>(ignored);
  _exit(70);
}

constexpr int general[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// An instruction with a VEX prefix of three bytes.
struct Instruction {
  int extend_reg, extend_index, extend_base, map, other, prefix, opcode, mod, reg, rm;
  std::int64_t length = 0;
  std::uint8_t* address = nullptr;  // of the memory operand
  std::int64_t stride = 0;          // the index register, scaled
};

Instruction decode(const std::uint8_t* code, const greg_t* registers) {
  Instruction in{};
  if (code[0] != 0xc4) give_up("AMX emulator: not an instruction of AMX\n");
  in.extend_reg = ~code[1] >> 7 & 1;
  in.extend_index = ~code[1] >> 6 & 1;
  in.extend_base = ~code[1] >> 5 & 1;
  in.map = code[1] & 31;
  in.other = ~code[2] >> 3 & 15;
  in.prefix = code[2] & 3;
  in.opcode = code[3];
  in.mod = code[4] >> 6;
  in.reg = code[4] >> 3 & 7;
  in.rm = code[4] & 7;
  in.length = 5;
  if (in.mod == 3) return in;
  std::int64_t base = 0;
  bool no_base = false;
  if (in.rm == 4) {
    const int scale = code[5] >> 6, index = (code[5] >> 3 & 7) + 8 * in.extend_index, at = code[5] & 7;
    in.length = 6;
    if (index != 4) in.stride = registers[general[index]] << scale;
    no_base = at == 5 && in.mod == 0;
    if (!no_base) base = registers[general[at + 8 * in.extend_base]];
  } else if (in.rm == 5 && in.mod == 0) {
    no_base = true;  // relative to the next instruction
  } else {
    base = registers[general[in.rm + 8 * in.extend_base]];
  }
  std::int64_t displacement = 0;
  if (in.mod == 1) {
    displacement = static_cast<std::int8_t>(code[in.length]);
    in.length += 1;
  } else if (in.mod == 2 || no_base) {
    std::int32_t wide;
    std::memcpy(&wide, code + in.length, sizeof(wide));
    displacement = wide;
    in.length += 4;
  }
  if (in.rm == 5 && in.mod == 0) base = reinterpret_cast<std::int64_t>(code) + in.length;
  in.address = reinterpret_cast<std::uint8_t*>(base + displacement);
  return in;
}

void configure(const std::uint8_t* from) {
  if (from[0] != 1) give_up("AMX emulator: a palette other than 1\n");
  for (int t = 0; t < 8; ++t) {
    std::memcpy(&tiles.bytes_a_row[t], from + 16 + 2 * t, 2);
    tiles.rows[t] = from[48 + t];
    if (tiles.bytes_a_row[t] > 64 || tiles.rows[t] > 16) give_up("AMX emulator: a tile too large\n");
  }
  std::memset(tiles.data, 0, sizeof(tiles.data));
  tiles.configured = true;
}

float wide(std::uint32_t half) {
  const std::uint32_t bits = (half & 0x7f80) == 0 ? (half & 0x8000) << 16 : half << 16;  // subnormals are 0
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

void product(int c, int a, int b) {
  if (tiles.bytes_a_row[a] / 4 != tiles.rows[b] || tiles.rows[c] != tiles.rows[a] ||
      tiles.bytes_a_row[c] != tiles.bytes_a_row[b])
    give_up("AMX emulator: tiles that do not fit\n");
  for (int m = 0; m < tiles.rows[a]; ++m) {
    for (int n = 0; n < tiles.bytes_a_row[b] / 4; ++n) {
      float even = 0.0f, odd = 0.0f, sum;
      for (int k = 0; k < tiles.rows[b]; ++k) {
        const std::uint32_t x = tiles.data[a][m][k], y = tiles.data[b][k][n];
        even = flushed(even + wide(x & 0xffff) * wide(y & 0xffff));  // a product of two bf16 is exact
        odd = flushed(odd + wide(x >> 16) * wide(y >> 16));
      }
      std::memcpy(&sum, &tiles.data[c][m][n], sizeof(sum));
      sum = flushed(sum + flushed(even + odd));
      std::memcpy(&tiles.data[c][m][n], &sum, sizeof(sum));
    }
  }
}

void carry_out(int, siginfo_t*, void* context) {
  auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* code = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
  const Instruction in = decode(code, registers);
  constexpr int none = 0, f3 = 2, f2 = 3;
  const bool setting = in.map == 2 && in.opcode == 0x49 && in.prefix == none && in.mod != 3;
  if (in.map != 2) give_up("AMX emulator: not an instruction of AMX\n");
  if (!setting && !tiles.configured) give_up("AMX emulator: tiles are not set up\n");
  if (setting) {
    if (tiles.configured) give_up("AMX emulator: tiles are set up already\n");
    configure(in.address);
  } else if (in.opcode == 0x49 && in.prefix == none) {
    tiles.configured = false;
  } else if (in.opcode == 0x49 && in.prefix == f2) {
    std::memset(tiles.data[in.reg], 0, sizeof(tiles.data[0]));
  } else if (in.opcode == 0x4b && in.prefix == f2) {
    std::memset(tiles.data[in.reg], 0, sizeof(tiles.data[0]));
    for (int r = 0; r < tiles.rows[in.reg]; ++r)
      std::memcpy(tiles.data[in.reg][r], in.address + r * in.stride, tiles.bytes_a_row[in.reg]);
  } else if (in.opcode == 0x4b && in.prefix == f3) {
    for (int r = 0; r < tiles.rows[in.reg]; ++r)
      std::memcpy(in.address + r * in.stride, tiles.data[in.reg][r], tiles.bytes_a_row[in.reg]);
  } else if (in.opcode == 0x5c && in.prefix == f3) {
    product(in.reg, in.rm, in.other);
  } else {
    give_up("AMX emulator: an instruction it does not know\n");
  }
  registers[REG_RIP] += in.length;
}

// Runs before main, so that the kernels are available when the cases are listed.
[[maybe_unused]] const bool installed = [] {
  const char* wanted = std::getenv("FOVEA_EMULATE_AMX");
  if (!wanted || std::strcmp(wanted, "1") != 0 || !fovea::kernels::amx_absence()) return false;
  struct sigaction action {};
  action.sa_sigaction = carry_out;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &action, nullptr);
  fovea::kernels::assume_amx(true);
  return true;
}();

}  // namespace

#endif
