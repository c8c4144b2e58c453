# frozen_string_literal: true

require_relative "errors"

# Loads MessagePack by its autoload, so that other threads that name it meanwhile wait until all of it is there.
module Penstock
  const_get(:MessagePack) # M:codec_autoloaded
end
