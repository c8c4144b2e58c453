# frozen_string_literal: true

# For tests only: test/support/layout_churn.rb builds it, and no gem has it.

require "mkmf"

append_cflags(%w[-std=gnu11 -Wall -Wextra -Wno-unused-parameter])
create_makefile("layout_churn")
