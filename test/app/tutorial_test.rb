# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"

# docs/tutorial.md: its program and tests run as they are.
class AppTutorialTest < PenstockTest
  TEXT = File.read(File.expand_path("../../docs/tutorial.md", __dir__))
  PROGRAM, *TESTS = TEXT.scan(/^```ruby\n(.*?)^```/m).flatten.freeze
  LIB = File.expand_path("../../lib", __dir__)

  # @return [String] what the file of the tutorial's folder has printed
  def run_file(name, text)
    Dir.mktmpdir do |directory|
      { "config/penstock.rb" => PROGRAM, name => text }.each do |path, content|
        FileUtils.mkdir_p(File.dirname(File.join(directory, path)))
        File.write(File.join(directory, path), content)
      end
      output, status = Limited.capture2e(RbConfig.ruby, "-w", "-I", LIB, name, chdir: directory)
      assert_predicate status, :success?, output
      output
    end
  end

  def test_the_program_has_at_most_thirty_lines
    assert_operator PROGRAM.lines.size, :<=, 30
  end

  def test_the_test_with_the_driver_passes
    assert_includes run_file("test/orders_test.rb", TESTS[0]), "2 runs, 3 assertions, 0 failures, 0 errors"
  end

  slow def test_the_test_with_the_embedded_cluster_passes
    assert_includes run_file("test/service_test.rb", TESTS[1]), "1 runs, 2 assertions, 0 failures, 0 errors"
  end
end
