# frozen_string_literal: true

require_relative "../test_helper"

# Programs of examples/ without a test file of their own (test/proofs/ffi_defect_test.rb is one).
class ExamplesTest < PenstockTest
  ROOT = File.expand_path("../..", __dir__)

  def example(name, *arguments)
    Limited.capture3(RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), File.join(ROOT, "examples", name), *arguments)
  end

  def assert_unpacked(output, ractors, messages)
    rows = output.lines.map(&:split)
    assert_equal %w[messages Ractors objects/s sum], rows.shift
    assert_equal [[messages, "1", "right"], [messages, ractors, "right"]], (rows.map { |row| row.values_at(0, 1, 3) })
    rows.each { |row| assert_operator Integer(row[2]), :>, 0 }
  end

  slow def test_each_ractor_unpacks_a_share_of_the_messages_of_an_embedded_cluster
    output, errors, status = example("ractors_unpack.rb", "3", "2500")
    assert_equal ["", true], [errors, status.success?]
    assert_unpacked output, "3", "2500"
  end

  def test_messages_are_counted_by_key
    output, errors, status = example("read_range.rb")
    assert_predicate status, :success?, errors
    assert_equal ["\"key-0\" 3000", "\"key-1\" 3000", "\"key-2\" 3000"], output.lines(chomp: true).sort
    assert_includes errors, "100 % of 9000 offsets"
  end

  def test_each_ractor_unpacks_a_share_of_the_messages_of_given_brokers
    output, errors, status = example("ractors_unpack.rb", "2", "100", cluster.bootstrap_servers)
    assert_equal ["", true], [errors, status.success?]
    assert_unpacked output, "2", "100"
  end
end
