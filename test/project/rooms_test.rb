# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require_relative "../test_helper"
require_relative "../support/room_checks"

# The checks of lib's rooms find violations in trees made for the tests, and none in lib.
class RoomsTest < Minitest::Test
  # @param files [Hash{String => String}] Ruby files below lib/penstock
  def findings(files)
    Dir.mktmpdir do |directory|
      files.each do |name, text|
        path = File.join(directory, "penstock", name)
        FileUtils.mkdir_p(File.dirname(path))
        File.write(path, text)
      end
      RoomChecks.new(directory).call.values.flatten
    end
  end

  def test_lib_has_no_file_outside_of_rooms_and_none_that_loads_or_uses_upwards
    found = RoomChecks.new(File.expand_path("../../lib", __dir__)).call
    assert_equal 4, found.size
    assert_empty found.values.flatten
  end

  def test_a_file_outside_the_rooms_is_found
    files = { "version.rb" => "", "errors.rb" => "", "errors/error.rb" => "", "helpers.rb" => "", "helpers/text.rb" => "" }
    assert_equal ["penstock/helpers.rb is in no room", "penstock/helpers/text.rb is in no room"], findings(files)
  end

  def test_a_file_that_loads_a_higher_room_is_found
    files = { "producer.rb" => "", "producer/part.rb" => "require_relative \"../consumer/message\"\n",
              "consumer/message.rb" => "", "errors.rb" => "require_relative \"errors/error\"\n",
              "errors/error.rb" => "  require \"penstock/producer\"\n" }
    assert_equal ["penstock/errors/error.rb loads penstock/producer.rb",
                  "penstock/producer/part.rb loads penstock/consumer/message.rb"], findings(files)
  end

  def test_loading_a_lower_room_and_autoloading_a_higher_one_are_allowed
    files = { "config.rb" => "require_relative \"errors\"\nrequire_relative \"config/secret\"\nrequire \"json\"\n",
              "errors.rb" => "",
              "config/secret.rb" => "require_relative \"../version\"\n", "version.rb" => "",
              "instrumentation.rb" => "require_relative \"config\"\nautoload :A, \"penstock/instrumentation/listeners/a\"\n",
              "instrumentation/listeners/a.rb" => "require_relative \"b\"\n", "instrumentation/listeners/b.rb" => "" }
    assert_empty findings(files)
  end

  def test_the_listeners_are_above_the_instrumentation
    files = { "instrumentation/monitor.rb" => "require_relative \"listeners/logger\"\n",
              "instrumentation/listeners/logger.rb" => "" }
    assert_equal ["penstock/instrumentation/monitor.rb loads penstock/instrumentation/listeners/logger.rb"], findings(files)
  end

  def test_a_constant_of_a_higher_room_is_found
    files = { "producer.rb" => "module Penstock\n  class Producer\n    class Part; end\n  end\nend\n",
              "config/secret.rb" => "module Penstock\n  class Secret\n    def part = Producer::Part.new\n  end\nend\n",
              "errors/error.rb" => "class Penstock::Error < ::Penstock::Producer; end\n",
              "version.rb" => "module Penstock; end\n",
              "consumer/text.rb" => "module Penstock\n  LIMIT = Secret.new if Unknown\nend\n" }
    assert_equal ["penstock/config/secret.rb uses Producer::Part", "penstock/errors/error.rb uses Producer"], findings(files)
  end

  def test_a_constant_that_a_lower_room_defines_too_may_be_used
    files = { "producer.rb" => "module Penstock\n  class Producer\n    NAME = 1\n    def name = [NAME, Producer]\n  end\nend\n",
              "errors.rb" => "module Penstock\n  class Producer; end\n  KIND = Producer\nend\n" }
    assert_empty findings(files)
  end

  def test_a_public_method_that_is_documented_as_private_is_found
    source = "# For us.\n# @api private\nclass Part\n  # @return [nil]\n  # @api private\n  # or so\n  def call = nil\nend\n"
    assert_equal ["penstock/base/part.rb marks def call = nil"], findings("base/part.rb" => source)
  end
end
