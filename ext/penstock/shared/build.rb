# frozen_string_literal: true

# What extconf.rb of both extensions does.

require "mkmf"
require "rbconfig/sizeof"

# The code for times, futexes and 64-bit counters works on 64-bit systems only, and is tested only there.
def check_word_size
  return if RbConfig::SIZEOF.fetch("void*") >= 8

  abort "Penstock needs a 64-bit Ruby; this one is 32-bit (#{RbConfig::CONFIG["arch"]})."
end

def set_flags
  append_cflags(%w[-std=gnu11 -fvisibility=hidden -Wall -Wextra])
  append_cflags(%w[-Wno-unused-parameter]) # Ruby's own headers have some, and methods often do not use self
  append_cflags(%w[-Werror]) if enable_config("werror")
  append_cflags(%w[-O0 -g3 -fno-omit-frame-pointer]) if enable_config("debug")
end
