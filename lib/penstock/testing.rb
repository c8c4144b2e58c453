# frozen_string_literal: true

# What programs use in their tests: `require "penstock/testing"` loads all of it at once. Without it each part is loaded when
# it is first named.
require "penstock"
require_relative "app"
require_relative "testing/embedded_cluster"
require_relative "testing/clients"
require_relative "testing/driven_client"
require_relative "testing/driven_runtime"
require_relative "testing/driver"
require_relative "testing/matchers"
require_relative "testing/assertions"
