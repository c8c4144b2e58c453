# frozen_string_literal: true

# Builds penstock/message_pack, which needs Ruby only.
#   ruby extconf.rb [--enable-debug] [--enable-werror]

require_relative "../shared/build"

check_word_size
have_func("rb_hash_new_capa", "ruby.h") # Ruby 3.2
$INCFLAGS << " -I$(srcdir)/.."
$headers = Dir[File.join(__dir__, "{.,../shared}/*.h")]
set_flags
create_makefile("penstock/message_pack")
