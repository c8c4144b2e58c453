# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/gc_exercises"

# Each native class while the garbage collector does what it can.
class GCClassesTest < PenstockTest
  PROGRAM = <<~RUBY.freeze
    require #{File.expand_path("support/gc_exercises", __dir__).dump}
    name, *rest = ARGV
    GCExercises.new(*rest).call(name)
  RUBY

  GCExercises::CLASSES.product(GCExercises::PRESSURES) do |name, pressure|
    define_method("test_#{name}_under_#{pressure}") do
      skip "no compaction here" unless pressure == :stress || GC.respond_to?(:verify_compaction_references)
      ruby!(PROGRAM, name.to_s, pressure.to_s, cluster.bootstrap_servers, topic(partitions: 1), seconds: 100)
    end
  end

  # None is forgotten.
  def test_each_native_class_is_exercised
    types = Dir[File.expand_path("../ext/penstock/*.c", __dir__)].flat_map { |file| File.read(file).scan(/"Penstock::(\w+)",$/) }
    names = types.flatten.map { |type| type.gsub(/(?<=[a-z])(?=[A-Z])/, "_").downcase.to_sym }
    assert_equal names.sort, GCExercises::CLASSES
  end
end
