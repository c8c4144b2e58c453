# frozen_string_literal: true

require "test_helper"
require_relative "support/proofs"

# What rake proofs does with what it runs.
class ProofsTest < PenstockTest
  def setup
    super
    @output = StringIO.new
  end

  def test_a_proof_that_fails_fails_the_whole_and_the_rest_still_runs
    refute proofs(first: "puts 1", second: "puts 'half'; exit 3", third: "puts 3; puts").run
    assert_equal [%w[passed first 1], %w[FAILED second half], %w[passed third 3]], table
  end

  def test_all_that_pass_pass
    assert proofs(first: "puts 1", second: "warn 2").run
    assert_equal [%w[passed first 1], %w[passed second 2]], table
  end

  def test_a_proof_that_is_killed_has_failed
    refute proofs(first: "$stdout.sync = true; puts 1; Process.kill(:KILL, Process.pid)").run
    assert_equal [%w[FAILED first 1]], table
  end

  def test_a_command_that_is_not_there_has_failed
    refute Proofs.new({ "first" => ["/nonexistent"] }, @output).run
    assert_match(/FAILED .* first .*No such file/, @output.string)
  end

  def test_parts_of_names_choose
    assert proofs(first: "puts 1", second: "exit 1", third: "puts 3").run(%w[fir thi])
    assert_equal [%w[passed first 1], %w[passed third 3]], table
    assert_raises(ArgumentError) { proofs(first: "puts 1").run(%w[fir other]) }
  end

  def test_each_proof_is_a_task
    tasks = Dir["#{__dir__}/../rakelib/*.rake"].flat_map { |file| File.read(file).scan(/task[ (]:?(\w+)/) }.flatten
    assert_empty File.read("#{__dir__}/../rakelib/proofs.rake")[/%w\[(.*?)\]/m, 1].split - tasks
  end

  private

  def proofs(**programs)
    Proofs.new(programs.to_h { |name, program| [name.to_s, [RbConfig.ruby, "-e", program]] }, @output)
  end

  # @return [Array<Array(String, String, String)>] state, name, last line
  def table = @output.string[/==== proofs\n(.*)\z/m, 1].lines.map { |line| line.split.values_at(0, 3, 4) }
end
