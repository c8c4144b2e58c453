# frozen_string_literal: true

IMAGES = FileList["docs/images/*.svg"].exclude("docs/images/*-dark.svg") # written by hand
DARK_COLOURS = {
  "#ffffff" => "#0d1117", # the page, the boxes, text on the poller
  "#f6f8fa" => "#151b23", # the panels
  "#d1d9e0" => "#3d444d", # borders of the page and the panels
  "#818b98" => "#8b949e", # borders of the boxes
  "#1f2328" => "#f0f6fc", # text
  "#59636e" => "#9ea7b0", # names of the layers
  "#0550ae" => "#79c0ff", # messages
  "#ddf4ff" => "#0c2d6b",
  "#116329" => "#3fb950", # delivery results
  "#dafbe1" => "#04260f"
}.freeze

# An image can read the browser's theme, but not the theme that the reader has chosen for the page that shows it. So there are two
# files, and the page's <picture> element chooses one.
desc "Writes the dark form of each picture in docs/images"
task :images, [:directory] do |_, arguments|
  IMAGES.each do |image|
    light = File.read(image)
    unknown = light.scan(/#\h{6}\b/).uniq - DARK_COLOURS.keys
    abort "rake images: #{image}: no dark colour for #{unknown.join(", ")}" unless unknown.empty?

    note = "<!-- Written by \"rake images\" from #{File.basename(image)}. -->"
    dark = light.gsub(/#\h{6}\b/, DARK_COLOURS).sub(/<!-- "rake images".*-->/, note)
    File.write(File.join(arguments[:directory] || File.dirname(image), image.pathmap("%n-dark.svg")), dark)
  end
end
