# frozen_string_literal: true

require_relative "../test_helper"

# Runs every error path a few times and counts the librdkafka objects that are created and destroyed: allocations.rb.
# Longer: rake test:allocations.
class AllocationsTest < Minitest::Test
  PROGRAM = File.expand_path("allocations.rb", __dir__)

  def run_paths(loops, *chosen)
    command = [RbConfig.ruby, "-w", "-I#{Subprocess::LIBRARY}", PROGRAM, loops.to_s, *chosen]
    output, status = Limited.capture2e(*command, seconds: 600)
    [output, status.success?]
  end

  # defect 1
  def test_error_paths_destroy_every_librdkafka_object_they_create
    output, passed = run_paths(100)
    assert passed, output
    assert_match(/^allocations: 0 of 3\d error paths leaked something/, output)
  end

  # More loops than above, for the mutations.
  def test_error_paths_of_an_admin_client_destroy_what_they_create
    output, passed = run_paths(200, "admin client")
    assert passed, output
    assert_match(/^allocations: 0 of 6 error paths leaked something/, output)
  end
end
