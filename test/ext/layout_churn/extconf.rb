# frozen_string_literal: true

# For tests only. test/proofs/support/ffi_defect.rb builds it, and the gem does not contain it.

require "mkmf"

append_cflags(%w[-std=gnu11 -Wall -Wextra -Wno-unused-parameter])
create_makefile("layout_churn")
